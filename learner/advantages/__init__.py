"""Advantages, one file each: against what a reward is compared, and on which scale.

Enters: the rewards of a whole cycle, and each sample's group (None: nobody else was asked the same). Leaves: a baseline and a
scale per sample; a token's advantage is (credit - baseline) * scale. People ask once, so groups are rare and every plugin has
an answer without them. A sample that can be compared with nothing, or only with its equals, gets 0: never NaN, never a huge
number over a tiny spread.

Legend: B samples.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.catalog import Catalog
from contracts.record import Record

Floats = NDArray[np.float64]
SPREAD = 1e-6
"""A standard deviation below this is rounding, not signal."""


class Baseline(NamedTuple):
    baseline_B: Floats
    scale_B: Floats


class Advantage(Record):
    @abstractmethod
    def __call__(self, rewards_B: Floats, groups_B: Sequence[str | None]) -> Baseline: ...


def inverse_spread(rewards: Floats, standardise: bool) -> float:
    """1 over the standard deviation (of the population: one sample has 0, not NaN), or 1; 0 where all rewards are the same."""
    spread = float(rewards.std()) if rewards.size else 0.0
    if spread < SPREAD:
        return 0.0
    return 1.0 / spread if standardise else 1.0


ADVANTAGES: Catalog[type[Advantage]] = Catalog("advantage", "learner.advantages")
