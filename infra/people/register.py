"""Who does not want to be recorded, whatever a client says on their behalf.

Enters: names, at the command line. Leaves: for gateways, a set in memory of hashes, brought up to date in the background by what
changed since the last look: a request never waits for a database. What can go wrong: the database is away, then the last known
set holds; what changed is known everywhere within one refresh.
"""

from __future__ import annotations

from sqlmodel import Session, col, select

from infra.db.engine import reading
from infra.db.insert import upsert
from infra.db.query import Engine
from infra.db.tables.people import OptOutRow

_SKEW_MS = 60_000
"""Rows are looked at again for so long after their time: clocks differ, and a transaction commits after its time was taken."""


def set_opted_out(session: Session, registered: str, out: bool, now_ms: int) -> None:
    """Remember a person's wish. Harmless when repeated."""
    upsert(session, OptOutRow, [OptOutRow(registered=registered, out=out, changed_ms=now_ms)], ("out", "changed_ms"))


def has_opted_out(session: Session, registered: str) -> bool:
    row = session.get(OptOutRow, registered)
    return row is not None and row.out


class OptOuts:
    """The register in memory, about 100 bytes a person. One thread refreshes, any may ask."""

    def __init__(self, database: Engine) -> None:
        self._database = database
        self._out: set[str] = set()
        self._seen_ms = 0

    def __contains__(self, registered: str) -> bool:
        return registered in self._out

    def refresh(self) -> None:
        """Raises `Retry` while the database is away; what was known then stays."""
        with reading(self._database) as session:
            news = session.exec(
                select(OptOutRow.registered, OptOutRow.out, OptOutRow.changed_ms).where(
                    col(OptOutRow.changed_ms) >= self._seen_ms - _SKEW_MS
                )
            ).all()
        for registered, out, changed_ms in news:
            (self._out.add if out else self._out.discard)(registered)
            self._seen_ms = max(self._seen_ms, changed_ms)
