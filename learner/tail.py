"""The last layer of a Llama, computed only where somebody looks: a fifth of a cycle's time when answers are short.

Enters: the decoder of a Llama-shaped model and a part of a minibatch. Leaves: final hidden states of the trainable positions.
Keys and values are needed everywhere, but queries, the output projection and the feed-forward of the last layer only at
positions whose logits are read. Exact, gradient included; `Scorer` compares it with the model itself before it is used.

Legend: B sequences, T tokens, Q most trainable tokens in a sequence, N trainable tokens in all, D hidden size, H heads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from learner.pack import Part


class Tail:
    """Takes the place of the last layer's forward while `part` is set; other uses of the model are untouched."""

    def __init__(self, decoder: nn.Module) -> None:
        self._decoder = decoder
        self._layer: Any = decoder.layers[-1]  # type: ignore[index]
        self._part: Part | None = None

    def __call__(self, part: Part) -> Tensor:
        """Hidden states after the final norm, N by D."""
        self._part = part
        self._layer.forward = self._forward
        try:
            hidden_1ND: Tensor = self._decoder(input_ids=part.ids_BT, use_cache=False).last_hidden_state
        finally:
            del self._layer.forward
            self._part = None
        return hidden_1ND[0]

    def _forward(self, hidden_BTD: Tensor, *, position_embeddings: tuple[Tensor, Tensor], **_: Any) -> Tensor:
        assert self._part is not None
        attention = self._layer.self_attn
        row_N, slot_N, at_BQ = _slots(self._part)
        normed_BTD = self._layer.input_layernorm(hidden_BTD)
        cos_BTD, sin_BTD = (part.expand(len(hidden_BTD), -1, -1) for part in position_embeddings)
        key = _turn(self._heads(attention.k_proj(normed_BTD)), cos_BTD, sin_BTD)
        value = self._heads(attention.v_proj(normed_BTD))
        query = _turn(self._heads(attention.q_proj(_take(normed_BTD, at_BQ))), _take(cos_BTD, at_BQ), _take(sin_BTD, at_BQ))
        sees_BQT = torch.arange(hidden_BTD.shape[1])[None, None, :] <= at_BQ[:, :, None]
        mixed_BHQD = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=sees_BQT[:, None], scale=attention.scaling, enable_gqa=True
        )
        mixed_BQD = attention.o_proj(mixed_BHQD.transpose(1, 2).flatten(2))
        hidden_BQD = _take(hidden_BTD, at_BQ) + mixed_BQD
        hidden_BQD = hidden_BQD + self._layer.mlp(self._layer.post_attention_layernorm(hidden_BQD))
        hidden_1ND: Tensor = hidden_BQD[row_N, slot_N][None]
        return hidden_1ND

    def _heads(self, projected: Tensor) -> Tensor:
        """B, T, H*D to B, H, T, D."""
        return projected.view(*projected.shape[:2], -1, self._layer.self_attn.head_dim).transpose(1, 2)


def fits(decoder: nn.Module) -> bool:
    """Other architectures mask, scale or normalise in ways of their own."""
    return getattr(getattr(decoder, "config", None), "model_type", None) == "llama"


def _slots(part: Part) -> tuple[Tensor, Tensor, Tensor]:
    """Where in B by Q each trainable token stands, and at which position of its sequence; unused slots look at position 0."""
    count_B = torch.bincount(part.row_N, minlength=len(part.ids_BT))
    first_B = count_B.cumsum(0) - count_B
    slot_N = torch.arange(len(part.row_N)) - first_B[part.row_N]
    at_BQ = torch.zeros(len(part.ids_BT), int(count_B.max()), dtype=torch.long)
    at_BQ[part.row_N, slot_N] = part.before_N
    return part.row_N, slot_N, at_BQ


def _take(of_BTD: Tensor, at_BQ: Tensor) -> Tensor:
    return of_BTD.gather(1, at_BQ[:, :, None].expand(-1, -1, of_BTD.shape[-1]))


def _turn(heads_BHTD: Tensor, cos_BTD: Tensor, sin_BTD: Tensor) -> Tensor:
    """Rotary positions."""
    left, right = heads_BHTD.chunk(2, dim=-1)
    return heads_BHTD * cos_BTD[:, None] + torch.cat((-right, left), dim=-1) * sin_BTD[:, None]
