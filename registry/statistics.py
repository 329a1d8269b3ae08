"""The canary's statistics, behind a few functions: everything a gate may conclude from figures is concluded here.

Enter: counts and sums. Leave: intervals and p-values. A controller looks several times a second, so what can throw a version out or
let it in is anytime-valid: its error rate holds however often one looks. Where nothing can be said the answer is None.
Sources: Robbins 1970 and Howard et al. 2021 (mixture boundaries), Waudby-Smith et al. 2024 (asymptotic confidence sequences).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from scipy import stats
from scipy.optimize import brentq
from scipy.special import betaln
from ville import best_rho, normal_mixture

Unit = Literal["request", "subject"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, its interval, and how many requests it rests on."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Sums:
    """What one subject's requests add up to: how many had a value, their sum, the sum of their squares."""

    n: int
    total: float
    squares: float


def wilson(hits: int, n: int, alpha: float = 0.05) -> Interval | None:
    """Wilson's interval of a share at one look; for tables, not for decisions."""
    if n == 0:
        return None
    z2 = float(stats.norm.isf(alpha / 2)) ** 2
    share = hits / n
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    reach = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    return Interval(share, max(0.0, centre - reach), min(1.0, centre + reach), n)


def normal_mean(n: int, total: float, squares: float, alpha: float = 0.05) -> Interval | None:
    """The normal interval of a mean at one look; for tables, not for decisions."""
    if n == 0:
        return None
    mean = total / n
    variance = max(0.0, squares - n * mean * mean) / (n - 1) if n > 1 else math.inf
    reach = float(stats.norm.isf(alpha / 2)) * math.sqrt(variance / n)
    return Interval(mean, mean - reach, mean + reach, n)


@lru_cache(maxsize=4096)
def share_sequence(hits: int, n: int, alpha: float) -> tuple[float, float]:
    """Anytime-valid interval of a share: all p that the beta-binomial mixture (uniform prior) has not rejected.

    E(p) = B(1 + s, 1 + n - s) / (p^s (1 - p)^(n - s)) is a martingale if p is true; p is rejected once E(p) >= 1 / alpha.
    """
    if n == 0:
        return 0.0, 1.0
    level = float(betaln(1 + hits, 1 + n - hits)) + math.log(alpha)
    share = hits / n

    def excess(p: float) -> float:
        likelihood = (hits * math.log(p) if hits else 0.0) + ((n - hits) * math.log1p(-p) if n > hits else 0.0)
        return level - likelihood

    tiny = 1e-12
    low = float(brentq(excess, tiny, share)) if hits and excess(tiny) > 0 else 0.0
    high = float(brentq(excess, share, 1 - tiny)) if n > hits and excess(1 - tiny) > 0 else 1.0
    return low, high


def difference(
    candidate: Sequence[Sums], champion: Sequence[Sums], alpha: float, unit: Unit, sharpest_at: float = 100.0
) -> Interval | None:
    """Anytime-valid interval of mean(candidate) - mean(champion), over requests that have a value.

    D is the difference of means and V its variance. With s2 the pooled variance of a request, t = s2 / V is the number of
    independent requests per arm that would tell as much, and |D - truth| <= sqrt(V / t) u(t) at all times with probability
    1 - alpha, where u is Robbins' normal mixture boundary, narrowest at t = `sharpest_at` (chosen before any data).

    `request` takes requests as independent: V = s2 / n in each arm. Right for simulated traffic, too narrow for people.
    `subject` lets the requests of one person hang together: V is the variance of the mean by leaving out one subject at a time
    (jackknife, CR3), never less than that of independent requests, and the boundary is stretched by Student's t, since few
    subjects show their spread badly.
    An arm borrows the pooled spread where its own is smaller: ten equal rewards do not prove that the eleventh is equal.
    """
    arms = (_Arm.of(candidate), _Arm.of(champion))
    if any(arm.n < 2 for arm in arms):
        return None
    if not all(math.isfinite(arm.mean) and math.isfinite(arm.spread) for arm in arms):
        return None
    pooled = sum(arm.spread for arm in arms) / (arms[0].n + arms[1].n - 2)
    # Two means are estimated: the spread of very few requests is taken with Student's t, as that of few subjects is.
    freedom = min(arm.n for arm in arms) - 1
    variance = sum(max(pooled, arm.spread / (arm.n - 1)) / arm.n for arm in arms)
    if unit == "subject":
        if any(arm.subjects < 2 for arm in arms):
            return None
        variance = sum(max(pooled / arm.n, arm.clustered) for arm in arms)
        freedom = min(arm.subjects for arm in arms) - 1
    value = arms[0].mean - arms[1].mean
    if variance <= 0:
        return Interval(value, value, value, arms[0].n)
    reach = math.sqrt(variance) * _boundary(pooled / variance, alpha, sharpest_at, freedom)
    return Interval(value, value - reach, value + reach, arms[0].n)


@dataclass(frozen=True, slots=True)
class _Arm:
    """`spread` is the sum of squared deviations of requests, `clustered` the variance of the mean over subjects."""

    n: int
    subjects: int
    mean: float
    spread: float
    clustered: float

    @classmethod
    def of(cls, sums: Sequence[Sums]) -> _Arm:
        people = [one for one in sums if one.n > 0]
        n = sum(one.n for one in people)
        if n == 0:
            return cls(0, 0, 0.0, 0.0, 0.0)
        mean = sum(one.total for one in people) / n
        # In this order: max(0, NaN) would be 0 and hide it.
        spread = max(sum(one.squares for one in people) - n * mean * mean, 0.0)
        return cls(n, len(people), mean, spread, _jackknifed(people, n, mean))


def _jackknifed(people: Sequence[Sums], n: int, mean: float) -> float:
    """Variance of the mean by leaving out one subject at a time, so that one who asks most of all cannot hide its own pull."""
    if len(people) < 2:
        return math.inf
    pulls = sum(((one.total - one.n * mean) / (n - one.n)) ** 2 for one in people)
    return (len(people) - 1) / len(people) * pulls


def _boundary(t: float, alpha: float, sharpest_at: float, freedom: int) -> float:
    """In standard errors. Student's t takes the place of the normal at the same tail probability."""
    normal = float(normal_mixture(t, alpha, _precision(sharpest_at, alpha))) / math.sqrt(t)
    tail = float(stats.norm.sf(normal))
    return float(stats.t.isf(tail, freedom)) if tail > 0 else math.inf


@lru_cache(maxsize=64)
def _precision(sharpest_at: float, alpha: float) -> float:
    return float(best_rho(sharpest_at, alpha))
