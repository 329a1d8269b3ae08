"""Leases with a fencing token: who may do a thing now, and a number by which a late writer is recognised.

Enters: a name and a holder. Leaves: a fence, or None while somebody else holds it. `check` raises `Fenced` inside the writer's
own transaction, so that work done under a lost lease leaves nothing behind.
"""

from __future__ import annotations

from sqlmodel import Session

from contracts.errors import Fenced
from infra.db.insert import insert_new
from infra.db.tables.stream import LeaseRow


def acquire(session: Session, name: str, holder: str, now_ms: int, ttl_ms: int) -> int | None:
    """Take a free or expired lease, or renew one's own."""
    if insert_new(session, LeaseRow, [LeaseRow(name=name, holder=holder, fence=1, expires_ms=now_ms + ttl_ms)]):
        return 1
    row = session.get(LeaseRow, name, with_for_update=True)
    assert row is not None, "a lease is never deleted"
    if row.holder != holder:
        if row.expires_ms > now_ms:
            return None
        row.holder = holder
        row.fence += 1
    row.expires_ms = now_ms + ttl_ms
    session.add(row)
    return row.fence


def check(session: Session, name: str, fence: int) -> None:
    row = session.get(LeaseRow, name, with_for_update=True)
    if row is None or row.fence != fence:
        raise Fenced(f"the lease {name!r} went to another holder (fence {row.fence if row else None}, ours was {fence})")


def release(session: Session, name: str, fence: int) -> None:
    row = session.get(LeaseRow, name, with_for_update=True)
    if row is not None and row.fence == fence:
        row.expires_ms = 0
        session.add(row)
