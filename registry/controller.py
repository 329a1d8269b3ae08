"""What to do with a candidate now: a pure function of the plan, the verdicts, the counts and the time.

Enters: values. Leaves: one `Decision`. A failed gate throws a version out at once, whatever else is missing. Only verdicts that
are all PASS, together with the step's minimums, let it go on. At the deadline the plan decides about being unsure; an error at
the deadline, or minimums that were not reached, is never a reason to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from contracts.policy import RolloutPlan, Step
from contracts.verdict import GateResult, Verdict, worst


class Action(StrEnum):
    HOLD = "hold"
    ADVANCE = "advance"
    PROMOTE = "promote"
    ROLL_BACK = "roll_back"
    REJECT = "reject"


@dataclass(frozen=True)
class Decision:
    action: Action
    reason: str


@dataclass(frozen=True)
class Loading:
    """What gateways say about the candidate: how many hold it ready, and why the first that could not, could not."""

    ready: int = 0
    failure: str | None = None


@dataclass(frozen=True)
class Counts:
    """Of the candidate, in this step."""

    requests: int = 0
    subjects: int = 0


def decide_bench(plan: RolloutPlan, loading: Loading, results: Sequence[GateResult], elapsed_s: float) -> Decision:
    """Before traffic: ADVANCE to the first step, REJECT, or HOLD. A plan without bench gates asks only for weights that load."""
    if loading.failure is not None:
        return Decision(Action.REJECT, f"it could not be loaded: {loading.failure}")
    failed = _of(results, Verdict.FAIL)
    if failed:
        return Decision(Action.REJECT, _because(failed))
    passed = sum(result.verdict is Verdict.PASS for result in results)
    proved = passed == len(results) == len(plan.bench_gates)
    if loading.ready and proved:
        return Decision(Action.ADVANCE, "loaded, and the bench passed" if plan.bench_gates else "loaded; the plan has no bench")
    if elapsed_s >= plan.bench_seconds:
        missing = _because(_not_passed(results)) if loading.ready else "no gateway has loaded it"
        return Decision(Action.REJECT, f"not proved within {plan.bench_seconds:g} s: {missing}")
    return Decision(Action.HOLD, "waiting for the bench" if loading.ready else "waiting for a gateway to load it")


def decide_step(plan: RolloutPlan, step: int, results: Sequence[GateResult], counts: Counts, elapsed_s: float) -> Decision:
    """On traffic: ADVANCE to the next step, PROMOTE after the last, ROLL_BACK, or HOLD."""
    failed = _of(results, Verdict.FAIL)
    if failed:
        return Decision(Action.ROLL_BACK, _because(failed))
    now = plan.steps[step]
    short = _short_of(now, counts, elapsed_s)
    last = step == len(plan.steps) - 1
    forward = Action.PROMOTE if last else Action.ADVANCE
    complete = len(results) == len(plan.gates)
    verdict = worst(result.verdict for result in results) if complete else Verdict.UNSURE
    if not short and verdict is Verdict.PASS:
        return Decision(forward, f"all {len(results)} gates pass at {now.share:.0%}")
    if elapsed_s < now.max_seconds:
        return Decision(Action.HOLD, short or f"unsure: {_because(_not_passed(results))}")
    late = f"undecided after {now.max_seconds:g} s at {now.share:.0%}: {short or _because(_not_passed(results))}"
    if plan.unsure_means == "promote" and complete and not short and verdict is Verdict.UNSURE:
        return Decision(forward, f"{late}; the plan says to go on when unsure")
    return Decision(Action.ROLL_BACK, late)


def _short_of(step: Step, counts: Counts, elapsed_s: float) -> str:
    wanted = (
        (counts.requests, step.min_requests, "requests"),
        (counts.subjects, step.min_subjects, "subjects"),
        (elapsed_s, step.min_seconds, "seconds"),
    )
    missing = [f"{got:.0f} of {need:g} {what}" for got, need, what in wanted if got < need]
    return f"needs more: {', '.join(missing)}" if missing else ""


def _of(results: Sequence[GateResult], verdict: Verdict) -> list[GateResult]:
    return [result for result in results if result.verdict is verdict]


def _not_passed(results: Sequence[GateResult]) -> list[GateResult]:
    return [result for result in results if result.verdict is not Verdict.PASS]


def _because(results: Sequence[GateResult]) -> str:
    return "; ".join(f"{result.gate}: {result.reason}" for result in results) or "a gate gave no answer"
