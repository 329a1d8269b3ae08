"""The learner's transactions: begin a cycle, seal it, skip it, abandon it. Each is whole or nothing, each is fenced.

Enters: a session inside a transaction. Leaves: rows of cycles, checkpoints and samples that agree with each other. A sample is
consumed in the transaction that records the checkpoint it is in, so however often a process dies, it is trained into the
lineage at most once. What can go wrong: `Fenced` when the cycle or its samples are no longer what they were at the start; then
nothing is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from contracts.checkpoint import Checkpoint
from contracts.errors import Fenced
from contracts.reward import Sample
from contracts.states import CYCLE_NEXT, CycleState, EpisodeState, SampleState, move
from contracts.topics import CHECKPOINTS
from infra.db import outbox
from infra.db.query import Session, col, select, update
from infra.db.tables.ingest import EpisodeRow
from infra.db.tables.learner import CheckpointRow, CycleRow, VersionNumberRow
from infra.db.tables.rewarding import SampleRow
from learner import admit
from learner.stats import CycleStats

OWNER = "learner"
_AT_ONCE = 1000


@dataclass(frozen=True)
class Begun:
    """A cycle that runs: what it will be called and what it learns from."""

    cycle_id: str
    policy: str
    version: str
    number: int
    parent: Checkpoint
    samples: tuple[Sample, ...]
    started_ms: int


def version_name(policy: str, number: int) -> str:
    return f"{policy}-v{number:04d}"


def next_number(session: Session, policy: str) -> int:
    """A number that was never handed out before; once this transaction commits, it never will be again."""
    row = session.get(VersionNumberRow, policy, with_for_update=True)
    if row is None:
        row = VersionNumberRow(policy=policy, last=0)
    row.last += 1
    session.add(row)
    return row.last


def begin(session: Session, parent: Checkpoint, chosen: admit.Selection, fence: int, now_ms: int) -> Begun | None:
    """Claim the selection under a new number; None when nothing of it waits any more."""
    policy = parent.policy
    admit.exclude(session, chosen.excluded)
    number = next_number(session, policy)
    version = version_name(policy, number)
    cycle_id = f"cycle-{version}"
    samples = admit.claim(session, cycle_id, chosen.samples)
    if not samples:
        return None
    stats = CycleStats(samples=len(samples), by_lag=chosen.by_lag, excluded=chosen.reasons(), held=chosen.held)
    session.add(
        CycleRow(
            cycle_id=cycle_id,
            policy=policy,
            state=CycleState.RUNNING,
            fence=fence,
            parent=parent.version,
            version=version,
            samples=len(samples),
            reason=None,
            stats=stats.encode().decode(),
            started_ms=now_ms,
            ended_ms=None,
        )
    )
    return Begun(cycle_id, policy, version, number, parent, tuple(samples), now_ms)


def report(session: Session, cycle_id: str, stats: CycleStats) -> None:
    session.execute(
        update(CycleRow)
        .where(col(CycleRow.cycle_id) == cycle_id, col(CycleRow.state) == CycleState.RUNNING)
        .values(stats=stats.encode().decode())
    )


def seal(session: Session, begun: Begun, checkpoint: Checkpoint, stats: CycleStats, now_ms: int) -> None:
    """Checkpoint, consumption and the promise to tell of it, in one transaction."""
    _end(session, begun.cycle_id, CycleState.SEALED, None, stats, now_ms)
    ids = sorted(sample.sample_id for sample in begun.samples)
    _still_ours(session, begun.cycle_id, ids)
    _settle(session, begun.cycle_id, SampleState.CONSUMED, None)
    consumed = sorted(admit.episodes(begun.samples))
    for start in range(0, len(consumed), _AT_ONCE):
        some = col(EpisodeRow.episode_id).in_(consumed[start : start + _AT_ONCE])
        session.exec(select(EpisodeRow.episode_id).where(some).order_by(col(EpisodeRow.episode_id)).with_for_update()).all()
        session.execute(
            update(EpisodeRow).where(some, col(EpisodeRow.state) == EpisodeState.CLOSED).values(state=EpisodeState.CONSUMED)
        )
    record(session, checkpoint, now_ms)


def record(session: Session, checkpoint: Checkpoint, now_ms: int) -> None:
    """Enter a sealed folder into the books and promise to publish it."""
    session.add(
        CheckpointRow(
            version=checkpoint.version,
            policy=checkpoint.policy,
            number=checkpoint.number,
            parent=checkpoint.parent,
            created_ms=now_ms,
            published_ms=None,
            body=checkpoint.encode().decode(),
        )
    )
    outbox.post(session, OWNER, CHECKPOINTS, checkpoint)


def skip(session: Session, begun: Begun, reason: str, stats: CycleStats, now_ms: int) -> None:
    """Nothing is sealed; the samples are set aside with the reason, so that they cannot fail the next cycle too."""
    _end(session, begun.cycle_id, CycleState.SKIPPED, reason, stats, now_ms)
    _settle(session, begun.cycle_id, SampleState.QUARANTINED, reason)


def running(session: Session, policy: str) -> list[str]:
    """Cycles that run, or that a process left behind."""
    return list(
        session.exec(select(CycleRow.cycle_id).where(CycleRow.policy == policy, CycleRow.state == CycleState.RUNNING)).all()
    )


def abandon(session: Session, policy: str, reason: str, now_ms: int) -> list[str]:
    """End every running cycle of the policy and give its samples back. The caller holds the lease, so none of them lives."""
    running = session.exec(select(CycleRow).where(CycleRow.policy == policy, CycleRow.state == CycleState.RUNNING)).all()
    for row in running:
        row.state = move(CYCLE_NEXT, CycleState(row.state), CycleState.ABANDONED)
        row.reason = reason
        row.ended_ms = now_ms
        session.add(row)
        session.execute(
            update(SampleRow)
            .where(col(SampleRow.cycle_id) == row.cycle_id, col(SampleRow.state) == SampleState.CLAIMED)
            .values(state=SampleState.READY, cycle_id=None)
        )
    return [row.cycle_id for row in running]


def manifest(samples: Sequence[Sample]) -> str:
    """Digest of the sorted ids of what was trained on."""
    return hashlib.sha256("\n".join(sorted(sample.sample_id for sample in samples)).encode()).hexdigest()


def _end(session: Session, cycle_id: str, state: CycleState, reason: str | None, stats: CycleStats, now_ms: int) -> None:
    row = session.get(CycleRow, cycle_id, with_for_update=True)
    if row is None or row.state != CycleState.RUNNING:
        raise Fenced(f"{cycle_id} is {row.state if row else 'gone'}, not running")
    row.state = move(CYCLE_NEXT, CycleState(row.state), state)
    row.reason = reason
    row.stats = stats.encode().decode()
    row.ended_ms = now_ms
    session.add(row)


def _still_ours(session: Session, cycle_id: str, ids: Sequence[str]) -> None:
    """A person's samples may have been deleted, or quarantined, while they were trained on: then these weights must not be."""
    held = select(SampleRow.sample_id).where(SampleRow.cycle_id == cycle_id, SampleRow.state == SampleState.CLAIMED)
    rows = session.exec(held.with_for_update()).all()
    if sorted(rows) != list(ids):
        raise Fenced(f"{cycle_id} holds {len(rows)} samples, not the {len(ids)} it was trained on")


def _settle(session: Session, cycle_id: str, state: SampleState, reason: str | None) -> None:
    session.execute(
        update(SampleRow)
        .where(col(SampleRow.cycle_id) == cycle_id, col(SampleRow.state) == SampleState.CLAIMED)
        .values(state=state, reason=reason)
    )
