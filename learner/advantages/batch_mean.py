"""The mean of the whole cycle as baseline.

    A_i = (R_i - mean(R))           or, with `standardise`,   (R_i - mean(R)) / std(R)

Source: REINFORCE with a baseline (Williams 1992); over the batch instead of a group as in REINFORCE++ (arXiv 2501.03262).
Standardised, the size of a step does not depend on the unit of the reward.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learner.advantages import ADVANTAGES, Advantage, Baseline, Floats, inverse_spread


@ADVANTAGES.add("batch_mean")
class BatchMean(Advantage):
    standardise: bool = False

    def __call__(self, rewards_B: Floats, groups_B: Sequence[str | None]) -> Baseline:
        scale = inverse_spread(rewards_B, self.standardise)
        return Baseline(np.full(rewards_B.shape, rewards_B.mean()), np.full(rewards_B.shape, scale))
