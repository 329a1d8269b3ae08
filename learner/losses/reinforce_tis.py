"""REINFORCE with truncated importance weights.

    L = -(1/tokens) * sum_n  sg(min(r_n, cap)) * A_n * log pi(y_n),    r_n = pi(y_n) / pi_behaviour(y_n)

sg: no gradient flows through the weight. Reduction: sum over all trainable tokens of the minibatch, divided by their number, so
a long answer weighs more than a short one. Source: truncated importance sampling (Ionides 2008), per token as in verl's rollout
correction and AReaL (arXiv 2505.24298); cap 2 is the usual value.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from learner.losses import LOSSES, Loss, LossValue, Size, Tokens


@LOSSES.add("reinforce_tis")
class ReinforceTis(Loss):
    cap: Annotated[float, Field(gt=0, allow_inf_nan=False, description="largest weight of a token")] = 2.0

    def __call__(self, tokens: Tokens, size: Size) -> LossValue:
        ratio_N = (tokens.logp_N.detach() - tokens.behaviour_N).exp()
        weight_N = ratio_N.clamp(max=self.cap)
        loss = -(weight_N * tokens.advantage_N * tokens.logp_N).sum() / size.tokens
        return LossValue(loss, ratio_N > self.cap)
