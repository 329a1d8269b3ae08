"""bench_floor: nothing missing, NaN or failed is ever good."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts.checkpoint import EvalReport, Metric
from contracts.verdict import Verdict
from registry.evidence import Evidence
from registry.gates.bench_floor import BenchFloor

GATE = BenchFloor(suite="smoke", floors={"answered": 0.99, "finite": 1.0}, ceilings={"silent": 0.95})


def verdict(report: EvalReport | None) -> Verdict:
    return GATE.judge(Evidence("tab-v0001", reports={"smoke": report} if report else {})).verdict


def test_verdicts(report_of: Callable[..., EvalReport]) -> None:
    assert verdict(report_of("tab-v0001")) is Verdict.PASS
    assert verdict(report_of("tab-v0001", answered=0.98)) is Verdict.FAIL
    assert verdict(report_of("tab-v0001", silent=0.96)) is Verdict.FAIL
    assert verdict(report_of("tab-v0001", silent=None)) is Verdict.UNSURE
    assert verdict(report_of("tab-v0001", error="the engine died")) is Verdict.ERROR
    assert verdict(None) is Verdict.UNSURE


def test_a_missing_metric_is_unsure_and_does_not_hide_a_bad_one(report_of: Callable[..., EvalReport]) -> None:
    assert verdict(report_of("tab-v0001", answered=None, silent=1.0)) is Verdict.FAIL


def test_nan_never_passes(report_of: Callable[..., EvalReport]) -> None:
    nan = Metric.model_construct(name="answered", value=float("nan"), low=None, high=None, n=64)
    report = report_of("tab-v0001")
    poisoned = report.model_copy(update={"metrics": (nan, *report.metrics[1:])})
    assert verdict(poisoned) is Verdict.UNSURE


def test_a_gate_without_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="must name a metric"):
        BenchFloor(suite="smoke")
