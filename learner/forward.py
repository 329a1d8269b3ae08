"""Log-probs of sampled tokens under the weights being trained, as the engine computed them when it sampled.

Enters: a causal LM and a part of a minibatch. Leaves: log-prob and entropy at each trainable position, in float32, the
temperature applied to the logits as at sampling. The vocabulary is multiplied out at trainable positions only: for 97 prompt
tokens and 5 of answer that is a twentieth of it. Models that do more to their logits than one matrix are found out by a probe
and computed in full.

Legend: B sequences, T tokens, N trainable tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from learner.pack import Part


class Scored(NamedTuple):
    """`entropy_N` carries no gradient."""

    logp_N: Tensor
    entropy_N: Tensor


class Scorer:
    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._decoder: nn.Module = model.base_model
        self._head: nn.Module | None = model.get_output_embeddings()
        if not self._head_is_all():
            self._head = None

    def __call__(self, part: Part) -> Scored:
        logits_NV = self._logits(part) / part.temperature_N[:, None]
        logp_NV = torch.log_softmax(logits_NV, dim=-1)
        with torch.no_grad():
            entropy_N = -(logp_NV.exp() * logp_NV).sum(-1)
        return Scored(logp_NV.gather(1, part.target_N[:, None])[:, 0], entropy_N)

    def _logits(self, part: Part) -> Tensor:
        if self._head is None:
            logits_BTV: Tensor = self._model(input_ids=part.ids_BT, use_cache=False).logits
            return logits_BTV[part.row_N, part.before_N].float()
        hidden_BTD: Tensor = self._decoder(input_ids=part.ids_BT, use_cache=False).last_hidden_state
        logits_NV: Tensor = self._head(hidden_BTD[part.row_N, part.before_N])
        return logits_NV.float()

    @torch.no_grad()
    def _head_is_all(self) -> bool:
        if self._head is None or self._decoder is self._model:
            return False
        probe_BT = torch.arange(8)[None] % self._model.config.get_text_config().vocab_size
        whole_BTV = self._model(input_ids=probe_BT, use_cache=False).logits
        short_BTV = self._head(self._decoder(input_ids=probe_BT, use_cache=False).last_hidden_state)
        return bool(torch.allclose(whole_BTV, short_BTV, atol=1e-4, rtol=1e-4))
