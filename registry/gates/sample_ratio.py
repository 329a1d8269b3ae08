"""Do as many subjects meet the candidate as the share says? If not, something picks them, and no comparison of the arms is fair.

Counts unique subjects by arm. Fail: the promised share is outside the anytime-valid interval (1 - `alpha`) of the share seen. Pass:
it is inside. Unsure: fewer than `min_subjects` in both arms together. The usual chi-squared test is valid for one look; a gate
looks several times a second while people arrive, and would in time reject a fair split.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contracts.verdict import Verdict
from registry.evidence import Evidence
from registry.gate import GATES, Finding, GateOptions
from registry.statistics import share_sequence


@GATES.add("sample_ratio")
class SampleRatio(GateOptions):
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.001
    min_subjects: Annotated[int, Field(ge=1, description="subjects in both arms together")] = 20

    def judge(self, evidence: Evidence) -> Finding:
        candidate, champion = evidence.candidate.subjects, evidence.champion.subjects
        n = candidate + champion
        if n < self.min_subjects:
            return Finding(verdict=Verdict.UNSURE, reason=f"{n} of {self.min_subjects} subjects seen", n=n)
        low, high = share_sequence(candidate, n, self.alpha)
        said = f"{candidate} of {n} subjects met the candidate, {evidence.share:.0%} should (seen: {low:.1%} to {high:.1%})"
        verdict = Verdict.PASS if low <= evidence.share <= high else Verdict.FAIL
        return Finding(verdict=verdict, reason=said, value=candidate / n, low=low, high=high, n=n)
