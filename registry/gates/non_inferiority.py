"""Is the candidate at most `margin` worse than the champion, on the reward or on a reward part (one held out of the reward, too)?

D = mean(candidate) - mean(champion) over the requests of this step that have a value, with an anytime-valid interval (1 - `alpha`).
Pass: the whole interval is above -margin. Fail: the whole interval is below 0 and the figure itself is at or below -margin: it is
certainly worse, and worse than tolerated as far as one can tell; or the whole interval is below -margin. Else unsure.
An equal candidate fails with a probability of at most alpha / 2 a step; one worse by `margin` passes with at most alpha / 2.
`unit: subject` (default) lets the requests of one person hang together; `unit: request` takes them as independent, which simulated
traffic is and people are not: with people it promises too much.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contracts.record import Name
from contracts.verdict import Verdict
from registry.evidence import Evidence
from registry.gate import GATES, Finding, GateOptions
from registry.statistics import Unit, difference


@GATES.add("non_inferiority")
class NonInferiority(GateOptions):
    measure: Name = "reward"
    margin: Annotated[float, Field(gt=0, allow_inf_nan=False, description="in units of the measure")]
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    unit: Unit = "subject"
    min_requests: Annotated[int, Field(ge=2, description="with a value, of each arm, below which nothing is said")] = 20
    sharpest_at: Annotated[float, Field(gt=0, description="independent requests per arm where the interval is narrowest")] = 100.0

    @property
    def subject(self) -> str:
        return self.measure

    def measures(self) -> frozenset[str]:
        return frozenset({self.measure})

    def judge(self, evidence: Evidence) -> Finding:
        arms = [arm.sums.get(self.measure, ()) for arm in (evidence.candidate, evidence.champion)]
        counts = [sum(one.n for one in sums) for sums in arms]
        if min(counts) < self.min_requests:
            said = f"{counts[0]} requests of the candidate and {counts[1]} of the champion have a {self.measure}"
            return Finding(verdict=Verdict.UNSURE, reason=f"{said}, {self.min_requests} each are needed", n=counts[0])
        found = difference(arms[0], arms[1], self.alpha, self.unit, self.sharpest_at)
        if found is None:
            said = f"the spread of {self.measure} over each arm's {self.unit}s is not known yet"
            return Finding(verdict=Verdict.UNSURE, reason=said, n=counts[0])
        reach = f"{found.low:+.3f} to {found.high:+.3f}"
        said = f"{self.measure} differs by {found.value:+.3f} ({reach}), {-self.margin:+g} is tolerated"
        verdict = Verdict.UNSURE
        if found.low > -self.margin:
            verdict = Verdict.PASS
        elif found.high < 0 and found.value <= -self.margin:
            verdict = Verdict.FAIL
        return Finding(verdict=verdict, reason=said, value=found.value, low=found.low, high=found.high, n=found.n)
