"""Ask a version that was just loaded a few fixed questions before anybody else may.

Enters: an engine and a version in it. Leaves: nothing, or `ProbeFailed` with one sentence: an answer that did not come,
log-probs that are not finite or not log-probs, or an engine that says something else than a second reading of the weights
does.
"""

from __future__ import annotations

import math
from concurrent.futures import TimeoutError as LateError

from contracts.errors import SlipstreamError
from contracts.turn import Sampling
from serving.engines.port import Engine, Request

GOLDEN = ("import os\nimport sys\n\n\ndef main():\n    ", "for item in ", 'class Point:\n    """', "x = [1, 2, 3]\n")
_TOKENS = 8
_PATIENCE_S = 60.0
TOLERANCE = 0.01
"""Nats between the batched, cached answer and the plain one; rounding of float32 stays below a thousandth."""


class ProbeFailed(SlipstreamError):
    """The version does not answer as its weights say."""


def probe(engine: Engine, version: str) -> None:
    asked = [engine.encode(version, prompt) for prompt in GOLDEN]
    sampling = Sampling(temperature=0.0, max_tokens=_TOKENS)
    futures = [engine.generate(Request(version, ids, sampling)) for ids in asked]
    for prompt_ids, future in zip(asked, futures, strict=True):
        try:
            answer = future.result(_PATIENCE_S)
        except LateError as late:
            raise ProbeFailed(f"version {version} did not answer a golden prompt within {_PATIENCE_S:.0f} s") from late
        if answer.logps is None or not all(math.isfinite(logp) for logp in answer.logps):
            raise ProbeFailed(f"version {version} answers a golden prompt with numbers that are not finite")
        if not answer.logps or max(answer.logps) > 1e-4:
            raise ProbeFailed(f"version {version} answers a golden prompt with log-probs that are none")
        expected = engine.score(version, prompt_ids, answer.completion_ids)
        apart = max(abs(mine - theirs) for mine, theirs in zip(answer.logps, expected, strict=True))
        if not apart <= TOLERANCE:
            raise ProbeFailed(f"version {version} answers {apart:.3g} nats away from what its weights say")
