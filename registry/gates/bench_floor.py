"""Bench results of one suite against fixed floors and ceilings.

Pass: each named metric is there and on the right side. Fail: one is on the wrong side. Unsure: the report, or a figure in it, is
missing (a metric that is None or no number is missing, never good). Error: the bench says that it could not measure.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from contracts.record import Finite, Name
from contracts.verdict import Verdict
from registry.evidence import Evidence
from registry.gate import GATES, Finding, GateOptions

Bounds = dict[str, Finite]
"""A bound by the name of its metric."""


@GATES.add("bench_floor")
class BenchFloor(GateOptions):
    suite: Name
    floors: Bounds = Field(default_factory=dict)
    ceilings: Bounds = Field(default_factory=dict)

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if not self.floors and not self.ceilings:
            raise ValueError("floors or ceilings must name a metric; a gate without a bound shows nothing")
        return self

    @property
    def subject(self) -> str:
        return self.suite

    def judge(self, evidence: Evidence) -> Finding:
        report = evidence.reports.get(self.suite)
        if report is None:
            return Finding(verdict=Verdict.UNSURE, reason=f"suite {self.suite} has not reported yet")
        if report.error is not None:
            return Finding(verdict=Verdict.ERROR, reason=f"suite {self.suite} could not measure: {report.error}")
        bounds = [(name, floor, 1, "floor") for name, floor in self.floors.items()]
        bounds += [(name, ceiling, -1, "ceiling") for name, ceiling in self.ceilings.items()]
        missing = None
        for name, bound, side, word in bounds:
            metric = report.metric(name)
            value = metric.value if metric is not None else None
            if value is None or value != value:
                missing = missing or f"suite {self.suite} has no figure for {name}"
            elif side * (value - bound) < 0:
                n = metric.n if metric is not None else 0
                return Finding(verdict=Verdict.FAIL, reason=f"{name} is {value:.4g}, the {word} is {bound:g}", value=value, n=n)
        if missing is not None:
            return Finding(verdict=Verdict.UNSURE, reason=missing)
        return Finding(verdict=Verdict.PASS, reason=f"{len(bounds)} bounds of suite {self.suite} hold")
