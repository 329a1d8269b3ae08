"""The decision is a pure function: what may never happen is a property of all inputs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contracts.policy import Plugin, RolloutPlan, Step
from contracts.verdict import GateResult, Verdict
from registry.controller import Action, Counts, Loading, decide_bench, decide_step

STEPS = (
    Step(share=0.1, min_requests=60, min_subjects=4, min_seconds=2, max_seconds=90),
    Step(share=0.5, min_requests=300, min_subjects=20, min_seconds=2, max_seconds=90),
)
FORWARD = {Action.ADVANCE, Action.PROMOTE}

verdicts = st.lists(st.sampled_from(list(Verdict)), min_size=0, max_size=5)
seconds = st.floats(0, 200, allow_nan=False)
counts = st.builds(Counts, st.integers(0, 500), st.integers(0, 40))
unsure_means = st.sampled_from(["roll_back", "promote"])


def plan_of(gates: int, unsure: str = "roll_back", bench: int = 1) -> RolloutPlan:
    plugin = Plugin(name="guardrail")
    return RolloutPlan(
        name="p", bench_gates=(plugin,) * bench, bench_seconds=60, steps=STEPS, gates=(plugin,) * max(1, gates), unsure_means=unsure
    )


def results_of(found: list[Verdict]) -> list[GateResult]:
    return [GateResult(gate=f"g{n}", verdict=verdict, reason="because") for n, verdict in enumerate(found)]


@given(verdicts, st.integers(0, 1), counts, seconds)
def test_goes_on_only_when_all_pass_and_all_minimums_are_met(found: list[Verdict], step: int, seen: Counts, elapsed: float) -> None:
    decision = decide_step(plan_of(len(found)), step, results_of(found), seen, elapsed)
    minimum = STEPS[step]
    enough = seen.requests >= minimum.min_requests and seen.subjects >= minimum.min_subjects and elapsed >= minimum.min_seconds
    may = bool(found) and set(found) == {Verdict.PASS} and enough
    assert (decision.action in FORWARD) == may
    assert decision.action is not Action.ADVANCE or step == 0
    assert decision.action is not Action.PROMOTE or step == 1


@given(verdicts, st.integers(0, 1), counts, seconds, unsure_means)
def test_a_failed_gate_rolls_back_at_once(found: list[Verdict], step: int, seen: Counts, elapsed: float, unsure: str) -> None:
    results = results_of([*found, Verdict.FAIL])
    decision = decide_step(plan_of(len(results), unsure), step, results, seen, elapsed)
    assert decision.action is Action.ROLL_BACK
    assert f"g{len(results) - 1}" in decision.reason


@given(verdicts, st.integers(0, 1), counts, unsure_means)
def test_the_deadline_decides(found: list[Verdict], step: int, seen: Counts, unsure: str) -> None:
    assert decide_step(plan_of(len(found), unsure), step, results_of(found), seen, 90.0).action is not Action.HOLD


@given(verdicts, st.integers(0, 1), counts, seconds)
def test_unsure_may_mean_promote_but_error_never_does(found: list[Verdict], step: int, seen: Counts, elapsed: float) -> None:
    decision = decide_step(plan_of(len(found), "promote"), step, results_of(found), seen, elapsed)
    if decision.action in FORWARD:
        assert found and set(found) <= {Verdict.PASS, Verdict.UNSURE}
        assert seen.requests >= STEPS[step].min_requests and seen.subjects >= STEPS[step].min_subjects


@given(verdicts, st.integers(0, 2), st.booleans(), seconds)
def test_nothing_leaves_the_bench_unproved_or_unloaded(found: list[Verdict], ready: int, broken: bool, elapsed: float) -> None:
    loading = Loading(ready, "wrong shape" if broken else None)
    decision = decide_bench(plan_of(1, bench=len(found)), loading, results_of(found), elapsed)
    if decision.action is Action.ADVANCE:
        assert ready and not broken and set(found) <= {Verdict.PASS}
    if broken or Verdict.FAIL in found or elapsed >= 60:
        assert decision.action is not Action.HOLD
    assert decision.action in {Action.ADVANCE, Action.HOLD, Action.REJECT}


def test_says_what_is_missing() -> None:
    held = decide_step(plan_of(1), 0, results_of([Verdict.PASS]), Counts(12, 2), 1.0)
    assert held.reason == "needs more: 12 of 60 requests, 2 of 4 subjects, 1 of 2 seconds"
    late = decide_step(plan_of(1), 0, results_of([Verdict.UNSURE]), Counts(100, 9), 90.0)
    assert late.action is Action.ROLL_BACK and "undecided after 90 s at 10%: g0: because" in late.reason


def test_a_bench_that_never_answers_is_a_rejection_with_its_reason() -> None:
    loaded = decide_bench(plan_of(1), Loading(1), results_of([Verdict.ERROR]), 60.0)
    assert loaded.action is Action.REJECT and "g0: because" in loaded.reason
    unloaded = decide_bench(plan_of(1), Loading(), [], 60.0)
    assert unloaded.action is Action.REJECT and "no gateway has loaded it" in unloaded.reason


def test_five_measurements_that_are_errors_or_failures_are_no_success() -> None:
    results = results_of([Verdict.ERROR, Verdict.FAIL, Verdict.ERROR, Verdict.ERROR, Verdict.FAIL])
    assert decide_step(plan_of(5), 0, results, Counts(1000, 100), 10).action is Action.ROLL_BACK
    errors = results_of([Verdict.ERROR] * 5)
    assert decide_step(plan_of(5), 0, errors, Counts(1000, 100), 10).action is Action.HOLD
    assert decide_step(plan_of(5, "promote"), 0, errors, Counts(1000, 100), 90).action is Action.ROLL_BACK


def test_no_results_at_all_hold_and_break_nothing() -> None:
    assert decide_step(plan_of(1), 0, [], Counts(1000, 100), 10).action is Action.HOLD
    assert decide_bench(plan_of(1), Loading(1), [], 10).action is Action.HOLD
