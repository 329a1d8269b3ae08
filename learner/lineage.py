"""Which weights descend from which, and whose words are in them.

Enters: a version, or a person's hash. Leaves: versions. Reads rows that only grow, so an answer stays true, except that
`touched_by` can only know what has not been deleted yet: ask before deleting.
"""

from __future__ import annotations

from contracts.states import SampleState
from infra.db.query import Session, col, select
from infra.db.tables.learner import CheckpointRow, CycleRow
from infra.db.tables.rewarding import SampleRow


def ancestors(session: Session, version: str) -> list[str]:
    """Parent, grandparent and so on, to the policy's version 0."""
    found: list[str] = []
    row = session.get(CheckpointRow, version)
    while row is not None and row.parent is not None and row.parent not in found:
        found.append(row.parent)
        row = session.get(CheckpointRow, row.parent)
    return found


def touched_by(session: Session, subject_hash: str) -> list[str]:
    """Versions trained on this person's samples and all that descend from those, oldest first."""
    trained = select(CycleRow.version).where(
        col(CycleRow.cycle_id).in_(
            select(SampleRow.cycle_id).where(SampleRow.subject == subject_hash, SampleRow.state == SampleState.CONSUMED)
        )
    )
    touched = set(session.exec(trained).all())
    policies = set(session.exec(select(CheckpointRow.policy).where(col(CheckpointRow.version).in_(touched))).all())
    rows = session.exec(
        select(CheckpointRow.version, CheckpointRow.parent, CheckpointRow.policy)
        .where(col(CheckpointRow.policy).in_(policies))
        .order_by(CheckpointRow.policy, col(CheckpointRow.number))
    ).all()
    # A parent's number is smaller than its child's, so one pass in order finds all descendants.
    for version, parent, _ in rows:
        if parent in touched:
            touched.add(version)
    return [version for version, _, _ in rows if version in touched]
