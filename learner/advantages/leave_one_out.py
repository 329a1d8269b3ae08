"""The mean of all the others as baseline: unbiased, because a sample's own reward is not in it.

    A_i = R_i - (1/(B-1)) * sum_{j != i} R_j          with `standardise`, divided by std(R)

Source: RLOO (Kool et al. 2019; arXiv 2402.14740), over the cycle where no siblings exist. With one sample alone A is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learner.advantages import ADVANTAGES, Advantage, Baseline, Floats, inverse_spread


@ADVANTAGES.add("leave_one_out")
class LeaveOneOut(Advantage):
    standardise: bool = False

    def __call__(self, rewards_B: Floats, groups_B: Sequence[str | None]) -> Baseline:
        if rewards_B.size < 2:
            return Baseline(rewards_B.copy(), np.zeros_like(rewards_B))
        others_B = (rewards_B.sum() - rewards_B) / (rewards_B.size - 1)
        return Baseline(others_B, np.full(rewards_B.shape, inverse_spread(rewards_B, self.standardise)))
