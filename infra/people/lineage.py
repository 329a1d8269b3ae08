"""Which checkpoints a person's words are in.

Enters: a person's hashes. Leaves: each version that was trained on samples of theirs or descends from one that was, with how many
it was trained on itself and where it stands. Reads rows that only grow, except that samples go when a person is deleted: ask
before, and keep the answer (`people_touched`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlmodel import Session, col, func, select

from contracts.states import SampleState
from infra.db.tables.learner import CheckpointRow, CycleRow
from infra.db.tables.registry import VersionRow
from infra.db.tables.rewarding import SampleRow


@dataclass(frozen=True)
class Touched:
    """`samples` 0: only an ancestor was trained on them. `state`: as the registry has it, None where it does not know it."""

    version: str
    policy: str
    samples: int
    state: str | None


def touched_by(session: Session, hashes: Collection[str]) -> list[Touched]:
    """Oldest first, by policy."""
    trained = select(CycleRow.version, func.count()).join(SampleRow, col(SampleRow.cycle_id) == col(CycleRow.cycle_id))
    trained = trained.where(col(SampleRow.subject).in_(hashes), SampleRow.state == SampleState.CONSUMED).group_by(CycleRow.version)
    return spread(session, dict(session.exec(trained).all()))


def spread(session: Session, samples: Mapping[str, int]) -> list[Touched]:
    """Versions that were trained on so many samples, and all that descend from them by now."""
    if not samples:
        return []
    policies = set(session.exec(select(CheckpointRow.policy).where(col(CheckpointRow.version).in_(samples))).all())
    rows = session.exec(
        select(CheckpointRow.version, CheckpointRow.parent, CheckpointRow.policy, VersionRow.state)
        .join(VersionRow, col(VersionRow.version) == col(CheckpointRow.version), isouter=True)
        .where(col(CheckpointRow.policy).in_(policies))
        .order_by(CheckpointRow.policy, col(CheckpointRow.number))
    ).all()
    touched = set(samples)
    # A parent's number is smaller than its child's, so one pass in order finds all descendants.
    for version, parent, _, _ in rows:
        if parent in touched:
            touched.add(version)
    return [Touched(version, policy, samples.get(version, 0), state) for version, _, policy, state in rows if version in touched]
