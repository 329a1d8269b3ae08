"""Which weights descend from which, and whose words are in them.

Enters: a version, or a person's hash. Leaves: versions. Reads rows that only grow, so an answer stays true, except that
`touched_by` can only know what has not been deleted yet: ask before deleting.
"""

from __future__ import annotations

from infra.db.query import Session
from infra.db.tables.learner import CheckpointRow
from infra.people import lineage


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
    return [touched.version for touched in lineage.touched_by(session, [subject_hash])]
