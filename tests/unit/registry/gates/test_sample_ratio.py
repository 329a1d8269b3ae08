"""sample_ratio: a split that is not what was promised spoils every other comparison."""

from __future__ import annotations

import random

import pytest

from contracts.verdict import Verdict
from registry.evidence import ArmEvidence, Evidence
from registry.gates.sample_ratio import SampleRatio


@pytest.mark.parametrize(
    ("candidate", "champion", "share", "verdict"),
    [
        (10, 90, 0.1, Verdict.PASS),
        (48, 52, 0.5, Verdict.PASS),
        (40, 60, 0.1, Verdict.FAIL),
        (0, 40, 0.1, Verdict.PASS),
        (0, 130, 0.1, Verdict.FAIL),
        (100, 0, 0.5, Verdict.FAIL),
        (2, 17, 0.1, Verdict.UNSURE),
        (0, 0, 0.1, Verdict.UNSURE),
    ],
)
def test_verdicts(candidate: int, champion: int, share: float, verdict: Verdict) -> None:
    evidence = Evidence("tab-v0001", share, ArmEvidence(subjects=candidate), ArmEvidence(subjects=champion))
    assert SampleRatio().judge(evidence).verdict is verdict


def test_a_fair_split_is_not_rejected_however_often_one_looks() -> None:
    dice, gate, alarms = random.Random(7), SampleRatio(alpha=0.05), 0
    for _ in range(150):
        met = 0
        for n in range(1, 241):
            met += dice.random() < 0.1
            evidence = Evidence("tab-v0001", 0.1, ArmEvidence(subjects=met), ArmEvidence(subjects=n - met))
            if n % 5 == 0 and gate.judge(evidence).verdict is Verdict.FAIL:
                alarms += 1
                break
    assert alarms <= 150 * 0.05
