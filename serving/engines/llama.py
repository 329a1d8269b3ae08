"""The decoder of Llama models for many short answers on few cores: one growing cache, rows that come and go at any step.

Enters: the tensors of a Hugging Face Llama folder, then prompts and sampled tokens. Leaves: logits of the next token, one row per
answer that is running. What can go wrong: `fits` says no for rotary scaling, biases or another activation; such models run in
`serving.engines.causal`.

Prompts are padded on the right: causal attention never sees what comes later, and each row writes over its padding as it grows.
The pairs that rotary embedding turns lie side by side here (they are half a head apart in the files), so that turning is one
complex product. The last layer computes keys and values for the whole prompt and everything else for its last token.

Legend: B rows, T tokens, D hidden size, H heads, G key-value heads, R heads per key-value head, C size of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor
from torch.nn import functional as F

CHUNK_TOKENS = 1024
"""Prompt tokens computed at once: what these take stays in the second-level cache."""


class _Layer(NamedTuple):
    norm_D: Tensor
    qkv: Tensor
    out: Tensor
    mlp_norm_D: Tensor
    gate_up: Tensor
    down: Tensor


class _Rope(BaseModel):
    rope_type: str = "default"
    rope_theta: float | None = None


class _Shape(BaseModel):
    """What this decoder reads of config.json."""

    model_type: Literal["llama"]
    hidden_act: Literal["silu"] = "silu"
    attention_bias: Literal[False] = False
    mlp_bias: Literal[False] = False
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    rope_theta: float | None = None
    rope_parameters: _Rope | None = None
    rope_scaling: _Rope | None = None

    @property
    def plain_rope(self) -> bool:
        return all(rope is None or rope.rope_type == "default" for rope in (self.rope_parameters, self.rope_scaling))

    @property
    def theta(self) -> float:
        return (self.rope_parameters.rope_theta if self.rope_parameters else None) or self.rope_theta or 10_000.0


def fits(config: Mapping[str, object]) -> bool:
    try:
        return _Shape.model_validate(config).plain_rope
    except ValidationError:
        return False


class LlamaRunner:
    """Rows 0 to n-1 are running; the cache behind them has room to spare and grows by doubling."""

    admits_midway = True

    def __init__(self, config: Mapping[str, object], tensors: Mapping[str, Tensor]) -> None:
        shape = _Shape.model_validate(config)
        self._heads = shape.num_attention_heads
        self._groups = shape.num_key_value_heads or self._heads
        self._size = shape.head_dim or shape.hidden_size // self._heads
        self._eps = shape.rms_norm_eps
        self.longest = shape.max_position_embeddings
        self._embed_VD = tensors["model.embed_tokens.weight"].float().contiguous()
        self.vocabulary = len(self._embed_VD)
        self._norm_D = tensors["model.norm.weight"].float()
        tied = shape.tie_word_embeddings or "lm_head.weight" not in tensors
        self._head_VD = self._embed_VD if tied else tensors["lm_head.weight"].float().contiguous()
        self._layers = [self._layer(tensors, f"model.layers.{i}.") for i in range(shape.num_hidden_layers)]
        frequency_C = 1.0 / shape.theta ** (torch.arange(0, self._size, 2, dtype=torch.float32) / self._size)
        angle_TC = torch.outer(torch.arange(self.longest, dtype=torch.float32), frequency_C)
        self._turn_TC = torch.polar(torch.ones_like(angle_TC), angle_TC)
        self._lengths: list[int] = []
        self._keys = self._values = torch.zeros(len(self._layers), 0, self._groups, 0, self._size)

    def _layer(self, tensors: Mapping[str, Tensor], at: str) -> _Layer:
        def take(name: str) -> Tensor:
            return tensors[f"{at}{name}.weight"].float()

        q, k = self._paired(take("self_attn.q_proj")), self._paired(take("self_attn.k_proj"))
        return _Layer(
            norm_D=take("input_layernorm"),
            qkv=torch.cat([q, k, take("self_attn.v_proj")]).contiguous(),
            out=take("self_attn.o_proj").contiguous(),
            mlp_norm_D=take("post_attention_layernorm"),
            gate_up=torch.cat([take("mlp.gate_proj"), take("mlp.up_proj")]).contiguous(),
            down=take("mlp.down_proj").contiguous(),
        )

    def _paired(self, weight: Tensor) -> Tensor:
        heads = weight.shape[0] // self._size
        return weight.view(heads, 2, self._size // 2, -1).transpose(1, 2).reshape(weight.shape)

    @property
    def rows(self) -> int:
        return len(self._lengths)

    def prefill(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Start an answer to each prompt, as new rows after those that run; logits of their first tokens."""
        longest = max(map(len, prompts))
        self._reserve(self.rows + len(prompts), longest + 1)
        size = max(1, CHUNK_TOKENS // longest)
        return torch.cat([self._prefill(prompts[i : i + size]) for i in range(0, len(prompts), size)])

    def _prefill(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        first, count, length = self.rows, len(prompts), max(map(len, prompts))
        ids_BT = torch.tensor([[*prompt, *[prompt[-1]] * (length - len(prompt))] for prompt in prompts])
        last_B = torch.tensor([len(prompt) - 1 for prompt in prompts])
        x_BTD = F.embedding(ids_BT, self._embed_VD)
        turn_TC = self._turn_TC[:length, None]
        every = torch.arange(count)
        for number, layer in enumerate(self._layers):
            q, k, v = self._project(layer, x_BTD, turn_TC)
            keys = self._keys[number, first : first + count, :, :length]
            values = self._values[number, first : first + count, :, :length]
            keys.copy_(k.transpose(1, 2))
            values.copy_(v.transpose(1, 2))
            if number + 1 < len(self._layers):
                mixed = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, is_causal=True, enable_gqa=True)
                x_BTD = self._feed(layer, x_BTD, mixed.transpose(1, 2).flatten(2))
            else:
                mask_BT = torch.arange(length) <= last_B[:, None]
                mixed_BD = self._attend(q[every, last_B], keys, values, mask_BT)
                x_BTD = self._feed(layer, x_BTD[every, last_B], mixed_BD)
        self._lengths += [len(prompt) for prompt in prompts]
        return self._logits(x_BTD)

    def decode(self, tokens: Sequence[int]) -> Tensor:
        """Append one token to every running row; logits of the next."""
        count, length = self.rows, max(self._lengths) + 1
        self._reserve(count, length)
        at_B = torch.tensor(self._lengths)
        every = torch.arange(count)
        mask_BT = torch.arange(length) <= at_B[:, None]
        x_BD = F.embedding(torch.tensor(tokens), self._embed_VD)
        turn_BC = self._turn_TC[at_B][:, None]
        for number, layer in enumerate(self._layers):
            q, k, v = self._project(layer, x_BD, turn_BC)
            keys, values = self._keys[number], self._values[number]
            keys[every, :, at_B] = k
            values[every, :, at_B] = v
            mixed_BD = self._attend(q, keys[:count, :, :length], values[:count, :, :length], mask_BT)
            x_BD = self._feed(layer, x_BD, mixed_BD)
        self._lengths = [length + 1 for length in self._lengths]
        return self._logits(x_BD)

    def drop(self, row: int, wipe: bool = False) -> None:
        """End a row; the last one takes its place. `wipe` a row whose numbers went bad: a masked NaN is still a NaN."""
        last = self.rows - 1
        if wipe:
            self._keys[:, row].zero_()
            self._values[:, row].zero_()
        if row != last:
            length = self._lengths[last]
            self._keys[:, row, :, :length] = self._keys[:, last, :, :length]
            self._values[:, row, :, :length] = self._values[:, last, :, :length]
        self._lengths[row] = self._lengths[last]
        self._lengths.pop()

    def _project(self, layer: _Layer, x: Tensor, turn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        qkv = F.linear(F.rms_norm(x, x.shape[-1:], layer.norm_D, self._eps), layer.qkv)
        qkv = qkv.view(*x.shape[:-1], self._heads + 2 * self._groups, self._size)
        pairs = qkv.view(*qkv.shape[:-1], self._size // 2, 2)[..., : self._heads + self._groups, :, :]
        torch.view_as_complex(pairs).mul_(turn)
        q, k, v = torch.split(qkv, [self._heads, self._groups, self._groups], dim=-2)
        return q, k, v

    def _attend(self, q_BHC: Tensor, keys_BGTC: Tensor, values_BGTC: Tensor, mask_BT: Tensor) -> Tensor:
        q_BGRC = q_BHC.reshape(len(q_BHC), self._groups, -1, self._size)
        score = torch.matmul(q_BGRC * self._size**-0.5, keys_BGTC.transpose(2, 3))
        score.masked_fill_(~mask_BT[:, None, None], -torch.inf)
        return torch.matmul(score.softmax(-1), values_BGTC).flatten(1)

    def _feed(self, layer: _Layer, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + F.linear(mixed, layer.out)
        gate, up = F.linear(F.rms_norm(x, x.shape[-1:], layer.mlp_norm_D, self._eps), layer.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate).mul_(up), layer.down)

    def _logits(self, x_BD: Tensor) -> Tensor:
        return F.linear(F.rms_norm(x_BD, x_BD.shape[-1:], self._norm_D, self._eps), self._head_VD)

    def _reserve(self, rows: int, length: int) -> None:
        have_rows, have_length = self._keys.shape[1], self._keys.shape[3]
        if rows <= have_rows and length <= have_length:
            return
        rows = max(have_rows, rows if rows <= have_rows else max(2 * have_rows, rows))
        length = have_length if length <= have_length else min(self.longest, -(-length // 64) * 64)
        for name in ("_keys", "_values"):
            old = getattr(self, name)
            new = torch.zeros(len(self._layers), rows, self._groups, length, self._size)
            new[:, :have_rows, :, :have_length] = old
            setattr(self, name, new)
