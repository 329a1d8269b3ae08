"""Do as many subjects meet the candidate as the share says? If not, something picks them, and no comparison of the arms is fair.

Chi-squared (exact binomial while an expectation is under 5) on unique subjects by arm. Fail: p < `alpha`. Pass: not. Unsure: fewer
than `min_subjects` in both arms together.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contracts.verdict import Verdict
from registry.evidence import Evidence
from registry.gate import GATES, Finding, GateOptions
from registry.statistics import split_p


@GATES.add("sample_ratio")
class SampleRatio(GateOptions):
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.001
    min_subjects: Annotated[int, Field(ge=1, description="subjects in both arms together")] = 20

    def judge(self, evidence: Evidence) -> Finding:
        candidate, champion = evidence.candidate.subjects, evidence.champion.subjects
        n = candidate + champion
        if n < self.min_subjects:
            return Finding(verdict=Verdict.UNSURE, reason=f"{n} of {self.min_subjects} subjects seen", n=n)
        p = split_p(candidate, champion, evidence.share)
        said = f"{candidate} of {n} subjects met the candidate, {evidence.share:.0%} should (p = {p:.3g})"
        verdict = Verdict.FAIL if p < self.alpha else Verdict.PASS
        return Finding(verdict=verdict, reason=said, value=candidate / n, n=n)
