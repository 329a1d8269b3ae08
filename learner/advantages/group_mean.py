"""The mean of those who were asked the same as baseline; without such siblings, the mean of the cycle.

    A_i = R_i - mean(R_g)          with `standardise`, divided by std(R_g);     g = the samples with i's group key

Source: GRPO (arXiv 2402.03300); without the division, Dr.GRPO (arXiv 2503.20783), which shows that it favours groups of nearly
equal rewards. A group whose rewards are all the same teaches nothing: A is 0. A group of one is no group: it falls back to the
cycle's mean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from learner.advantages import ADVANTAGES, Advantage, Baseline, Floats, inverse_spread


@ADVANTAGES.add("group_mean")
class GroupMean(Advantage):
    standardise: bool = False

    def __call__(self, rewards_B: Floats, groups_B: Sequence[str | None]) -> Baseline:
        baseline_B = np.full(rewards_B.shape, rewards_B.mean())
        scale_B = np.full(rewards_B.shape, inverse_spread(rewards_B, self.standardise))
        members: dict[str, list[int]] = defaultdict(list)
        for place, group in enumerate(groups_B):
            if group is not None:
                members[group].append(place)
        for places in members.values():
            if len(places) > 1:
                baseline_B[places] = rewards_B[places].mean()
                scale_B[places] = inverse_spread(rewards_B[places], self.standardise)
        return Baseline(baseline_B, scale_B)
