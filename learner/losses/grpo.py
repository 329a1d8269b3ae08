"""GRPO's clipped surrogate, without its KL term.

    L = -(1/S) * sum_s (1/len_s) * sum_{n in s}  min(r_n * A_n, clip(r_n, 1 - eps_low, 1 + eps_high) * A_n)

with r_n = pi(y_n) / pi_behaviour(y_n). Reduction: mean over the sequences of the mean over each one's trainable tokens, so a
short answer's token weighs more than a long one's. Group normalisation is not here: it is the advantage `group_mean` with
`standardise`. Source: DeepSeekMath, arXiv 2402.03300; eps_low 0.2 with eps_high 0.28 is DAPO's clip-higher, arXiv 2503.14476.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from learner.losses import LOSSES, Loss, LossValue, Size, Tokens


@LOSSES.add("grpo")
class Grpo(Loss):
    eps_low: Annotated[float, Field(ge=0, le=1, description="ratio below 1 that still counts")] = 0.2
    eps_high: Annotated[float, Field(ge=0, allow_inf_nan=False, description="ratio above 1 that still counts")] = 0.2

    def __call__(self, tokens: Tokens, size: Size) -> LossValue:
        ratio_N = (tokens.logp_N - tokens.behaviour_N).exp()
        free_N = ratio_N * tokens.advantage_N
        bound_N = ratio_N.clamp(1.0 - self.eps_low, 1.0 + self.eps_high) * tokens.advantage_N
        length_S = torch.bincount(tokens.sequence_N)
        share_N = 1.0 / length_S[tokens.sequence_N].to(ratio_N.dtype)
        loss = -(torch.minimum(free_N, bound_N) * share_N).sum() / size.sequences
        return LossValue(loss, bound_N.detach() < free_N.detach())
