"""Log-probs of sampled tokens under the weights being trained, as the engine computed them when it sampled.

Enters: a causal LM and a part of a minibatch. Leaves: log-prob and entropy at each trainable position, in float32, the
temperature applied to the logits as at sampling. The vocabulary is multiplied out at trainable positions only: for 97 prompt
tokens and 5 of answer that is a twentieth of it. Models that do more to their logits than one matrix are found out by a probe
and computed in full.

Legend: B sequences, T tokens, N trainable tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from learner.pack import Part, Sequenced, minibatch
from learner.tail import Tail, fits


class Scored(NamedTuple):
    """`entropy_N` carries no gradient."""

    logp_N: Tensor
    entropy_N: Tensor


class Scorer:
    """Picks the shortest way that gives the model's own logits: trimmed last layer, one matrix at the end, or all of it."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._decoder: nn.Module = model.base_model
        self._head: nn.Module | None = model.get_output_embeddings()
        ways = [self._from_tail, self._from_hidden] if fits(self._decoder) else [self._from_hidden]
        self._tail = Tail(self._decoder) if fits(self._decoder) else None
        self._logits = next((way for way in ways if self._agrees(way)), self._in_full)

    def __call__(self, part: Part) -> Scored:
        logits_NV = self._logits(part).float() / part.temperature_N[:, None]
        logp_NV = torch.log_softmax(logits_NV, dim=-1)
        with torch.no_grad():
            entropy_N = -(logp_NV.exp() * logp_NV).sum(-1)
        return Scored(logp_NV.gather(1, part.target_N[:, None])[:, 0], entropy_N)

    def _from_tail(self, part: Part) -> Tensor:
        assert self._tail is not None and self._head is not None
        logits_NV: Tensor = self._head(self._tail(part))
        return logits_NV

    def _from_hidden(self, part: Part) -> Tensor:
        assert self._head is not None
        hidden_BTD: Tensor = self._decoder(input_ids=part.ids_BT, use_cache=False).last_hidden_state
        logits_NV: Tensor = self._head(hidden_BTD[part.row_N, part.before_N])
        return logits_NV

    def _in_full(self, part: Part) -> Tensor:
        logits_BTV: Tensor = self._model(input_ids=part.ids_BT, use_cache=False).logits
        return logits_BTV[part.row_N, part.before_N]

    @torch.no_grad()
    def _agrees(self, way: Callable[[Part], Tensor]) -> bool:
        """On a small part with two sequences of different lengths."""
        if self._head is None or self._decoder is self._model:
            return False
        part = _probe(self._model.config.get_text_config().vocab_size)
        return bool(torch.allclose(way(part), self._in_full(part), atol=1e-4, rtol=1e-4))


def _probe(vocabulary: int) -> Part:
    turns = [
        Sequenced(tuple(n % vocabulary for n in range(length)), length - 3, (-1.0, -1.0, -1.0), 1.0, 0.0) for length in (9, 11)
    ]
    return minibatch(turns, 1 << 20).parts[0]
