"""What every engine promises: several versions of one policy side by side, loaded and freed while others answer.

Enters: folders of weights, and requests that name a version. Leaves: answers with the exact ids that were sampled and the
log-prob of each under the distribution it was drawn from. What can go wrong: `BrokenModel` when a folder cannot be served,
`NotLoaded` for a version that is not here (any more), `Busy` when too many wait, `BadPrompt` for a prompt that the model
cannot take.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from contracts.errors import SlipstreamError
from contracts.turn import Finish, Sampling


class BrokenModel(SlipstreamError):
    """These weights cannot be served: one sentence that says what is wrong with them."""


class NotLoaded(SlipstreamError):
    """The version is not in this engine, or on its way out."""


class Busy(SlipstreamError):
    """Too many requests wait already."""


class BadPrompt(SlipstreamError):
    """The prompt is empty, too long, or has ids that the model does not know."""


@dataclass(frozen=True, slots=True)
class Request:
    """`on_token` hears each sampled id that is part of the text, from the engine's thread. `abort` set: end with what there is."""

    version: str
    prompt_ids: Sequence[int]
    sampling: Sampling
    stop: tuple[str, ...] = ()
    on_token: Callable[[int], None] | None = None
    abort: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """`completion_ids` holds the token that ended the answer too, because it was sampled; `text` does not.

    `logps` None: the numbers went bad (finish `error`) and nothing can be learned from this answer. At temperature 0 the
    log-probs are those of the untempered distribution.
    """

    version: str
    completion_ids: tuple[int, ...]
    logps: tuple[float, ...] | None
    text: str
    finish: Finish


@dataclass(frozen=True, slots=True)
class Message:
    """A line of a chat."""

    role: str
    content: str


class Engine(Protocol):
    def load(self, version: str, folder: Path, base: Path | None = None) -> None:
        """Make a version ready; blocks its caller and nobody else. `base`: what an adapter's folder lies over."""
        ...

    def free(self, version: str) -> None:
        """Take no new request for it; its memory goes when those that run have ended. Unknown versions are ignored."""
        ...

    def versions(self) -> frozenset[str]:
        """Those that take requests."""
        ...

    def generate(self, request: Request) -> Future[Answer]: ...

    def score(self, version: str, prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> list[float]:
        """Log-probs at temperature 1 by a second reading of the weights and without a cache: what `generate` should have said."""
        ...

    def encode(self, version: str, text: str) -> list[int]:
        """Plain text: what looks like a special token in it is text."""
        ...

    def encode_chat(self, version: str, messages: Sequence[Message]) -> list[int]: ...

    def decode(self, version: str, ids: Sequence[int]) -> str: ...

    def longest(self, version: str) -> int:
        """Tokens of prompt and answer together."""
        ...

    def close(self) -> None: ...
