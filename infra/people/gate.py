"""Nobody writes down what a person did while that person is being deleted.

Writers of people's rows (the joiner, the rewarder) come through together; a deletion comes through alone, batch by batch: what it
did not see cannot be committed behind its back. On SQLite writers queue anyway; on PostgreSQL this is an advisory lock that ends
with the transaction and costs no row.
"""

from __future__ import annotations

from sqlalchemy import text
from sqlmodel import Session

_LOCK = 0x5EED_0E0F


def come_through(session: Session) -> None:
    """First thing in a transaction that writes rows of people."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock_shared(:lock)"), {"lock": _LOCK})


def come_alone(session: Session) -> None:
    """First thing in a transaction that deletes them."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    else:
        # What is deleted is overwritten, not only forgotten.
        session.execute(text("PRAGMA secure_delete = ON"))
