"""Draw the next token of each row, and say how likely it was under the distribution it was drawn from.

    z = logits / temperature, cut to the top k, then to the smallest set whose probability reaches top p
    p = softmax(z); token = first v whose cumulated p exceeds u; log-prob = log p[token]

Enters: logits and, per row, how to draw and one number u in [0, 1). Leaves: tokens, log-probs, and which rows are not finite.
A row depends on its own logits and its own u alone, so a seed gives the same answer whoever else is in the batch. At
temperature 0 the token is the most likely one and the log-prob that of the untempered, uncut distribution.

Legend: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from contracts.turn import Sampling


class Drawn(NamedTuple):
    tokens: list[int]
    logps: list[float]
    finite: list[bool]


def draw(logits_BV: Tensor, how: Sequence[Sampling], uniform: Sequence[float]) -> Drawn:
    temperatures = [row.temperature for row in how]
    z_BV = logits_BV.float() / torch.tensor([t or 1.0 for t in temperatures])[:, None]
    finite_B = torch.isfinite(z_BV.sum(1))
    top_k = [0 if row.temperature == 0 else row.top_k for row in how]
    top_p = [1.0 if row.temperature == 0 else row.top_p for row in how]
    if any(top_k) or min(top_p) < 1.0:
        z_BV = _cut(z_BV, top_k, top_p)
    logp_BV = z_BV.log_softmax(1)
    cumulated_BV = logp_BV.exp().cumsum(1, dtype=torch.float64)
    # u stays clear of 1, or rounding could pick a token behind the last possible one.
    mark_B1 = torch.tensor(uniform, dtype=torch.float64).clamp_(max=1 - 1e-12)[:, None] * cumulated_BV[:, -1:]
    token_B1 = torch.searchsorted(cumulated_BV, mark_B1, right=True).clamp_(max=z_BV.shape[1] - 1)
    if 0.0 in temperatures:
        greedy_B1 = torch.tensor([t == 0.0 for t in temperatures])[:, None]
        token_B1 = torch.where(greedy_B1, z_BV.argmax(1, keepdim=True), token_B1)
    logps = logp_BV.gather(1, token_B1)[:, 0].tolist()
    return Drawn(token_B1[:, 0].tolist(), logps, finite_B.tolist())


def _cut(z_BV: Tensor, top_k: Sequence[int], top_p: Sequence[float]) -> Tensor:
    size = z_BV.shape[1]
    sorted_BV, order_BV = z_BV.sort(dim=1, descending=True, stable=True)
    k_B1 = torch.tensor([min(k, size) if k else size for k in top_k])[:, None]
    sorted_BV = sorted_BV.masked_fill(torch.arange(size) >= k_B1, -torch.inf)
    p_BV = sorted_BV.softmax(1)
    before_BV = p_BV.cumsum(1) - p_BV
    beyond_BV = (before_BV >= torch.tensor(top_p)[:, None]) & (torch.tensor(top_p) < 1.0)[:, None]
    beyond_BV[:, 0] = False
    sorted_BV = sorted_BV.masked_fill(beyond_BV, -torch.inf)
    return torch.empty_like(z_BV).scatter_(1, order_BV, sorted_BV)
