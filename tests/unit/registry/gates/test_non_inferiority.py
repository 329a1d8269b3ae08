"""non_inferiority: passes what is as good, fails what is certainly worse, and waits otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from contracts.verdict import Verdict
from registry.evidence import ArmEvidence, Evidence
from registry.gates.non_inferiority import NonInferiority
from registry.statistics import Sums

Make = Callable[..., Evidence]


@pytest.mark.parametrize("unit", ["subject", "request"])
def test_verdicts(evidence_of: Make, unit: Any) -> None:
    gate = NonInferiority(margin=0.10, unit=unit)
    judge = lambda *seen: gate.judge(evidence_of(*seen)).verdict  # noqa: E731
    assert judge(0, 0) is Verdict.UNSURE
    assert judge(10, 500) is Verdict.UNSURE
    assert judge(100, 900, (0.02, 0.3)) is Verdict.FAIL
    assert judge(1500, 1500, (0.3, 0.3)) is Verdict.PASS
    assert judge(1500, 1500, (0.4, 0.3)) is Verdict.PASS
    assert judge(60, 540, (0.27, 0.3)) is Verdict.UNSURE


def test_slightly_worse_within_the_margin_passes_and_is_not_thrown_out(evidence_of: Make) -> None:
    found = NonInferiority(margin=0.10, unit="request").judge(evidence_of(8000, 8000, (0.26, 0.31)))
    assert found.high is not None and found.high < 0
    assert found.verdict is Verdict.PASS


def test_a_part_held_out_of_the_reward_can_be_the_measure() -> None:
    def arm(hits: int) -> ArmEvidence:
        sums = {"accepted": tuple(Sums(10, float(hits), float(hits)) for _ in range(60))}
        return ArmEvidence(requests=600, subjects=60, rewarded=600, sums=sums)

    gate = NonInferiority(measure="accepted", margin=0.1)
    assert gate.measures() == {"accepted"}
    assert gate.judge(Evidence("v", 0.5, arm(1), arm(4))).verdict is Verdict.FAIL
    assert gate.judge(Evidence("v", 0.5, arm(4), arm(4))).verdict is Verdict.PASS
    assert gate.judge(Evidence("v", 0.5, ArmEvidence(), arm(4))).verdict is Verdict.UNSURE


def test_nan_is_no_data_and_holds(evidence_of: Make) -> None:
    nan = float("nan")
    broken = {"sums": {"reward": tuple(Sums(10, nan, nan) for _ in range(60))}}
    for arms in ({"candidate_has": broken}, {"champion_has": broken}):
        found = NonInferiority(margin=0.1).judge(evidence_of(600, 600, **arms))
        assert found.verdict is Verdict.UNSURE and found.value is None
