"""guardrail: fails when it is sure, passes when it has seen enough, and is unsure in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts.verdict import Verdict
from registry.evidence import ArmEvidence, Evidence
from registry.gates.guardrail import Guardrail


def arm(requests: int, hits: int = 0, measure: str = "error") -> ArmEvidence:
    return ArmEvidence(requests=requests, finishes={measure: hits})


@pytest.mark.parametrize(
    ("hits", "n", "verdict"),
    [
        (0, 0, Verdict.UNSURE),
        (0, 49, Verdict.UNSURE),
        (0, 50, Verdict.PASS),
        (1, 50, Verdict.PASS),
        (2, 50, Verdict.UNSURE),
        (3, 3, Verdict.FAIL),
        (10, 50, Verdict.FAIL),
        (12, 500, Verdict.UNSURE),
        (60, 500, Verdict.FAIL),
    ],
)
def test_share_against_a_fixed_bound(hits: int, n: int, verdict: Verdict) -> None:
    gate = Guardrail(measure="error", max=0.02)
    assert gate.judge(Evidence("tab-v0001", 0.1, arm(n, hits), arm(900))).verdict is verdict


def test_a_version_that_always_answers_empty_is_found_within_twenty_requests() -> None:
    gate = Guardrail(measure="empty", max=0.2)
    first = next(n for n in range(1, 60) if gate.judge(Evidence("v", 0.1, arm(n, n, "empty"), arm(9 * n))).verdict is Verdict.FAIL)
    assert first <= 20


def test_share_against_the_champion() -> None:
    gate = Guardrail(measure="empty", max_ratio=1.5)
    judge = lambda mine, theirs: gate.judge(Evidence("v", 0.5, arm(*mine, "empty"), arm(*theirs, "empty"))).verdict  # noqa: E731
    assert judge((200, 20), (200, 20)) is Verdict.PASS
    assert judge((200, 120), (200, 20)) is Verdict.FAIL
    assert judge((200, 36), (200, 20)) is Verdict.UNSURE
    assert judge((200, 200), (10, 0)) is Verdict.UNSURE


def test_latency_is_judged_by_how_many_are_too_slow(evidence_of: Callable[..., Evidence]) -> None:
    gate = Guardrail(measure="latency_p95_ms", max_ratio=1.5)
    usual = tuple(float(ms) for ms in range(10, 110))

    def judge(mine: tuple[float, ...]) -> Verdict:
        candidate, champion = (ArmEvidence(requests=100, latencies=latencies) for latencies in (mine, usual))
        return gate.judge(Evidence("v", 0.5, candidate, champion)).verdict

    assert judge(usual) is Verdict.PASS
    assert judge(tuple(2 * ms for ms in usual)) is Verdict.FAIL
    assert judge(()) is Verdict.UNSURE
    one_hiccup = (*usual[:93], *(200.0,) * 7)
    assert judge(one_hiccup) is Verdict.UNSURE


def test_needs_exactly_one_bound() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Guardrail(measure="error")
    with pytest.raises(ValueError, match="exactly one"):
        Guardrail(measure="error", max=0.1, max_ratio=2.0)
