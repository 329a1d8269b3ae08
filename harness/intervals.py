"""A rate or a mean with its 95 % interval; no interval can be had from nothing, and then there is no value either."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

from contracts.checkpoint import Metric

_LEVEL = 0.95


def rate(name: str, hits: int, of: int) -> Metric:
    """Wilson's interval for a share."""
    if of == 0:
        return Metric(name=name, value=None, n=0)
    interval = stats.binomtest(hits, of).proportion_ci(_LEVEL, method="wilson")
    return Metric(name=name, value=hits / of, low=float(interval.low), high=float(interval.high), n=of)


def mean(name: str, values: Sequence[float]) -> Metric:
    """Student's interval for a mean."""
    n = len(values)
    if n == 0:
        return Metric(name=name, value=None, n=0)
    centre = math.fsum(values) / n
    if n == 1:
        return Metric(name=name, value=centre, n=1)
    spread = math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (n - 1) / n)
    reach = float(stats.t.ppf(0.5 + _LEVEL / 2, n - 1)) * spread
    return Metric(name=name, value=centre, low=centre - reach, high=centre + reach, n=n)
