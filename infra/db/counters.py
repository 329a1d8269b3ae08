"""Counts of things of which nothing else is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session

from infra.db.tables.stream import CounterRow

Tally = Counter[tuple[str, str]]
"""Numbers by (policy, counter)."""

_INSERT: dict[str, Callable[..., Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def count(session: Session, policy: str, name: str, number: int = 1) -> None:
    count_all(session, {(policy, name): number})


def count_all(session: Session, numbers: Mapping[tuple[str, str], int]) -> None:
    """Add to counters by (policy, name). Everybody writes these rows, so a transaction does it last and in their order."""
    table = CounterRow.__table__  # type: ignore[attr-defined]
    for (policy, name), number in sorted(numbers.items()):
        statement = _INSERT[session.get_bind().dialect.name](table).values(policy=policy, name=name, count=number)
        added = {"count": table.c.count + statement.excluded.count}
        session.execute(statement.on_conflict_do_update(index_elements=[table.c.policy, table.c.name], set_=added))
