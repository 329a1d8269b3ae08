"""Counts of things of which nothing else is kept."""

from __future__ import annotations

from sqlmodel import Session

from infra.db.tables.stream import CounterRow


def count(session: Session, policy: str, name: str, number: int = 1) -> None:
    row = session.get(CounterRow, (policy, name), with_for_update=True)
    if row is None:
        row = CounterRow(policy=policy, name=name, count=0)
    row.count += number
    session.add(row)
    session.flush()
