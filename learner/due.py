"""Whether a policy's next cycle is due, and if not, what it waits for.

Enters: rows of the database and the time. Leaves: `Due` with the parent, or one sentence. A cycle starts by volume (a full
batch waits) or by time (a smaller one does, and the last cycle ended long enough ago); never while an earlier checkpoint is
still on its way to traffic, so that what is learned from was sampled by the weights that learn.
"""

from __future__ import annotations

from dataclasses import dataclass

from contracts.checkpoint import Checkpoint
from contracts.policy import Policy
from contracts.rollout import Rollout
from contracts.states import CheckpointState, CycleState, SampleState
from infra.db.query import Session, col, func, select
from infra.db.tables.learner import CheckpointRow, CycleRow
from infra.db.tables.registry import RolloutRow, VersionRow
from infra.db.tables.rewarding import SampleRow
from learner.admit import admissible

_UNDERWAY = (CheckpointState.SEALED, CheckpointState.BENCH, CheckpointState.CANARY)
_LONGEST_BACKOFF = 6


@dataclass(frozen=True)
class Due:
    """`parent`: the champion, from which the next version descends. `why`: volume or time."""

    parent: Checkpoint
    why: str


@dataclass(frozen=True)
class NotDue:
    why: str


def minimum(policy: Policy) -> int:
    return min(policy.learner.min_samples, policy.learner.cycle_samples)


def look(session: Session, policy: Policy, now_ms: int, retry_ms: float) -> Due | NotDue:
    row = session.get(RolloutRow, policy.name)
    if row is None:
        return NotDue("no version answers traffic yet")
    rollout = Rollout.decode(row.body)
    if rollout.candidate is not None:
        return NotDue(f"{rollout.candidate} is being tried")
    pending = _underway(session, policy.name)
    if pending is not None:
        return NotDue(f"{pending} waits to be tried")
    champion = session.get(CheckpointRow, rollout.champion)
    if champion is None:
        return NotDue(f"the champion {rollout.champion} was not sealed here")
    patience = _backoff_ms(session, policy.name, retry_ms)
    if patience > now_ms:
        return NotDue(f"the last cycle failed; the next try is in {(patience - now_ms) / 1000:.0f} s")
    why = _volume_or_time(session, policy, now_ms)
    if isinstance(why, NotDue):
        return why
    return Due(Checkpoint.decode(champion.body), why)


def _underway(session: Session, policy: str) -> str | None:
    """The newest checkpoint, while the registry has not settled it."""
    newest = session.exec(
        select(CheckpointRow).where(CheckpointRow.policy == policy).order_by(col(CheckpointRow.number).desc()).limit(1)
    ).first()
    if newest is None:
        return None
    known = session.get(VersionRow, newest.version)
    return newest.version if known is None or known.state in _UNDERWAY else None


def _volume_or_time(session: Session, policy: Policy, now_ms: int) -> str | NotDue:
    learner = policy.learner
    counts = dict(
        session.exec(
            select(SampleRow.subject, func.count())
            .where(SampleRow.policy == policy.name, SampleRow.state == SampleState.READY)
            .group_by(SampleRow.subject)
        ).all()
    )
    ready = sum(counts.values())
    batch = admissible(counts, learner.max_subject_share, learner.cycle_samples)
    if batch >= learner.cycle_samples:
        return "volume"
    if batch < minimum(policy):
        held = f", of which the share of a subject allows {batch}" if batch < ready else ""
        return NotDue(f"{ready} of {minimum(policy)} samples are ready{held}")
    waited_s = (now_ms - _last_end_ms(session, policy.name)) / 1000
    if waited_s < learner.cycle_seconds:
        return NotDue(f"{batch} of {learner.cycle_samples} samples, {waited_s:.0f} of {learner.cycle_seconds:.0f} s")
    return "time"


def _last_end_ms(session: Session, policy: str) -> int:
    """When the last cycle ended, or else when there was first something to improve."""
    ended = session.exec(
        select(func.max(col(CycleRow.ended_ms))).where(
            CycleRow.policy == policy, col(CycleRow.state).in_((CycleState.SEALED, CycleState.SKIPPED))
        )
    ).one()
    if ended is not None:
        return int(ended)
    first = session.exec(select(func.min(col(CheckpointRow.created_ms))).where(CheckpointRow.policy == policy)).one()
    return int(first or 0)


def _backoff_ms(session: Session, policy: str, retry_ms: float) -> float:
    """After cycles that failed in a row, when the next may be tried: what fails every time must not run all the time."""
    recent = session.exec(
        select(CycleRow.state, CycleRow.reason, CycleRow.ended_ms)
        .where(CycleRow.policy == policy, CycleRow.state != CycleState.RUNNING)
        .order_by(col(CycleRow.started_ms).desc(), col(CycleRow.version).desc())
        .limit(_LONGEST_BACKOFF + 1)
    ).all()
    failures = 0
    for state, reason, _ in recent:
        if state != CycleState.ABANDONED or reason in CALM:
            break
        failures += 1
    return (recent[0][2] or 0) + retry_ms * 2 ** (failures - 1) if failures else 0.0


STOPPED = "stopped"
TAKEN_OVER = "taken_over"
CALM = frozenset({STOPPED, TAKEN_OVER})
"""Ends of a cycle that say nothing about it: asked to stop, or found unfinished after its process had gone."""
