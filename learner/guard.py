"""Whether a step may be taken, and whether finished weights may be sealed.

Enters: what was measured before the optimiser touched anything. Leaves: None, or the code of the reason why not. A step that is
refused leaves weights, optimiser and step count as they were, to the bit; a cycle that is refused seals nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NO_TOKENS = "no_tokens"
NO_SIGNAL = "no_signal"
NON_FINITE_LOSS = "non_finite_loss"
NON_FINITE_NORM = "non_finite_norm"
KL = "kl"
ESS = "ess"
NO_STEP = "no_step"
NON_FINITE_WEIGHTS = "non_finite_weights"


@dataclass(frozen=True, slots=True)
class Drift:
    """How far weights are from those that sampled, per token: r = pi / pi_behaviour on sampled tokens.

    `kl_k1` = mean(-log r) and `kl_k3` = mean(r - 1 - log r) estimate KL(behaviour, new): the first without bias, the second never
    below 0. `ess` = (sum r)^2 / (n * sum r^2).
    """

    kl_k1: float
    kl_k3: float
    ess: float
    ratio_max: float
    entropy: float


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one minibatch showed. `refused` None: the step was taken."""

    tokens: int
    sequences: int
    loss: float
    grad_norm: float
    clip_share: float
    drift: Drift
    refused: str | None


@dataclass(frozen=True, slots=True)
class Bounds:
    max_kl: float
    min_ess: float


def refuse_step(loss: float, grad_norm: float, drift: Drift, bounds: Bounds) -> str | None:
    if not math.isfinite(loss):
        return NON_FINITE_LOSS
    if not math.isfinite(grad_norm):
        return NON_FINITE_NORM
    return refuse_drift(drift, bounds)


def refuse_drift(drift: Drift, bounds: Bounds) -> str | None:
    """Comparisons are written so that NaN is refused."""
    if not (drift.kl_k1 <= bounds.max_kl and drift.kl_k3 <= bounds.max_kl):
        return KL
    if not drift.ess >= bounds.min_ess:
        return ESS
    return None
