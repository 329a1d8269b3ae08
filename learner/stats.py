"""What a cycle says about itself while it runs and when it has ended: the JSON of `CycleRow.stats`.

A figure that could not be measured, or came out as NaN, is None: nothing that looks like a number stands for its absence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from contracts.record import Finite, Record
from learner.guard import Drift

Phase = Literal["claimed", "loading", "training", "measuring", "sealing", "sealed", "skipped"]


class CycleStats(Record):
    """`kl` is k3. `by_lag`: samples by checkpoints between sampling and training. `held`: left for a later cycle, by reason."""

    phase: Phase = "claimed"
    step: int = 0
    steps: int = 0
    samples: int = 0
    tokens: int = 0
    by_lag: Mapping[str, int] = {}
    excluded: Mapping[str, int] = {}
    held: Mapping[str, int] = {}
    skipped_steps: Mapping[str, int] = {}
    mean_reward: Finite | None = None
    no_signal_share: Finite | None = None
    loss: Finite | None = None
    grad_norm: Finite | None = None
    kl: Finite | None = None
    kl_k1: Finite | None = None
    ess: Finite | None = None
    ratio_max: Finite | None = None
    clip_share: Finite | None = None
    entropy: Finite | None = None
    final_kl: Finite | None = None
    seconds: Finite = 0.0
    tokens_per_s: Finite | None = None
    fresh_optimizer: bool | None = None

    def with_drift(self, drift: Drift) -> CycleStats:
        return self.with_figures(kl=drift.kl_k3, kl_k1=drift.kl_k1, ess=drift.ess, ratio_max=drift.ratio_max, entropy=drift.entropy)

    def with_figures(self, **figures: float) -> CycleStats:
        return self.model_copy(update={name: value if math.isfinite(value) else None for name, value in figures.items()})

    def figures(self) -> dict[str, float]:
        """Every number that could be measured, flat, as a checkpoint and MLflow keep them."""
        flat = self.model_dump(
            exclude={"phase", "by_lag", "excluded", "held", "skipped_steps", "fresh_optimizer"}, exclude_none=True
        )
        flat["skipped_steps"] = sum(self.skipped_steps.values())
        return {name: float(value) for name, value in flat.items()}
