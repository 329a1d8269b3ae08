"""CISPO: the weight is cut, the token keeps its gradient.

    L = -(1/tokens) * sum_n  sg(clip(r_n, 0, 1 + eps_high)) * A_n * log pi(y_n),    r_n = pi(y_n) / pi_behaviour(y_n)

Reduction: sum over all trainable tokens of the minibatch, divided by their number. Source: MiniMax-M1, arXiv 2506.13585. With
eps_high = cap - 1 it is the same as `reinforce_tis`; the name says which published setting is meant.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from learner.losses import LOSSES, Loss, LossValue, Size, Tokens


@LOSSES.add("cispo")
class Cispo(Loss):
    eps_high: Annotated[float, Field(ge=0, allow_inf_nan=False, description="weight above 1 that is still passed on")] = 0.28

    def __call__(self, tokens: Tokens, size: Size) -> LossValue:
        ratio_N = (tokens.logp_N.detach() - tokens.behaviour_N).exp()
        weight_N = ratio_N.clamp(0.0, 1.0 + self.eps_high)
        loss = -(weight_N * tokens.advantage_N * tokens.logp_N).sum() / size.tokens
        return LossValue(loss, ratio_N > 1.0 + self.eps_high)
