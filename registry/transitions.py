"""The moves of a rollout by name: each changes the ledger and the routing together, in the caller's transaction.

Enters: the standing that was read, and why. Leaves: the new routing. Whoever raced and came second gets `LostRace` and nothing is
written.
"""

from __future__ import annotations

from contracts.policy import RolloutPlan
from contracts.rollout import Rollout
from contracts.states import CheckpointState
from infra.clock import from_ms
from infra.db.query import Session
from infra.db.tables.registry import VersionRow
from registry.ledger import Why, move_version, note, route

State = CheckpointState


def bootstrap(session: Session, first: VersionRow, why: Why, owner: str) -> Rollout:
    """A policy's first version goes live at once: there is nothing to compare it with, and nobody to answer without it."""
    move_version(session, first.policy, first.version, State.SEALED, State.BENCH, why)
    move_version(session, first.policy, first.version, State.BENCH, State.LIVE, why)
    rollout = Rollout(policy=first.policy, revision=1, champion=first.version, reason=why.reason, at=from_ms(why.at_ms))
    route(session, rollout, owner)
    return rollout


def begin_bench(session: Session, now: Rollout, next_up: VersionRow, why: Why, owner: str) -> Rollout:
    """Gateways load it; only who asks for it by name gets it. One experiment per candidate, named after it."""
    move_version(session, now.policy, next_up.version, State.SEALED, State.BENCH, why)
    return _route(
        session, now, why, owner, candidate=next_up.version, candidate_state=State.BENCH, experiment=next_up.version, step=None
    )


def begin_step(session: Session, now: Rollout, plan: RolloutPlan, step: int, why: Why, owner: str) -> Rollout:
    """The first step turns a benched version into a canary; a further one only moves the share."""
    candidate = _candidate(now)
    if step == 0:
        move_version(session, now.policy, candidate, State.BENCH, State.CANARY, why)
    else:
        note(session, now.policy, candidate, State.CANARY, why)
    return _route(session, now, why, owner, candidate_state=State.CANARY, step=step, share=plan.steps[step].share)


def promote(session: Session, now: Rollout, why: Why, owner: str) -> Rollout:
    candidate = _candidate(now)
    move_version(session, now.policy, candidate, State.CANARY, State.LIVE, why)
    move_version(session, now.policy, now.champion, State.LIVE, State.RETIRED, _replaced(why, candidate))
    return _route(session, now, why, owner, champion=candidate, **_NO_CANDIDATE)


def throw_out(session: Session, now: Rollout, before: CheckpointState, why: Why, owner: str) -> Rollout:
    """Rejected from the bench, or rolled back from the canary; the champion answers everybody again."""
    to = State.REJECTED if before is State.BENCH else State.ROLLED_BACK
    move_version(session, now.policy, _candidate(now), before, to, why)
    return _route(session, now, why, owner, **_NO_CANDIDATE)


_NO_CANDIDATE: dict[str, float | None] = {
    "candidate": None,
    "candidate_state": None,
    "experiment": None,
    "step": None,
    "share": 0.0,
}


def _candidate(now: Rollout) -> str:
    assert now.candidate is not None, "this move is about a candidate"
    return now.candidate


def _replaced(why: Why, by: str) -> Why:
    return Why(why.who, f"replaced by {by}", why.at_ms, why.step)


def _route(session: Session, now: Rollout, why: Why, owner: str, **changes: str | float | None) -> Rollout:
    fields = now.model_dump() | changes | {"revision": now.revision + 1, "reason": why.reason, "at": from_ms(why.at_ms)}
    following = Rollout.model_validate(fields)
    route(session, following, owner)
    return following
