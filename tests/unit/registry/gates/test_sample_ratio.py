"""sample_ratio: a split that is not what was promised spoils every other comparison."""

from __future__ import annotations

import pytest

from contracts.verdict import Verdict
from registry.evidence import ArmEvidence, Evidence
from registry.gates.sample_ratio import SampleRatio


@pytest.mark.parametrize(
    ("candidate", "champion", "share", "verdict"),
    [
        (10, 90, 0.1, Verdict.PASS),
        (48, 52, 0.5, Verdict.PASS),
        (30, 70, 0.1, Verdict.FAIL),
        (0, 40, 0.1, Verdict.PASS),
        (0, 100, 0.1, Verdict.FAIL),
        (100, 0, 0.5, Verdict.FAIL),
        (2, 17, 0.1, Verdict.UNSURE),
        (0, 0, 0.1, Verdict.UNSURE),
    ],
)
def test_verdicts(candidate: int, champion: int, share: float, verdict: Verdict) -> None:
    evidence = Evidence("tab-v0001", share, ArmEvidence(subjects=candidate), ArmEvidence(subjects=champion))
    assert SampleRatio().judge(evidence).verdict is verdict
