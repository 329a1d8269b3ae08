"""Bulk inserts that are harmless when repeated, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, SQLModel

_INSERT: dict[str, Callable[..., Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_SQLITE_VARIABLES = 30_000


def insert_new(session: Session, table: type[SQLModel], rows: Iterable[SQLModel]) -> set[Any]:
    """Insert the rows whose primary key is not there yet; answers the first key column of those that were inserted."""
    return _insert(session, table, rows, update=())


def upsert(session: Session, table: type[SQLModel], rows: Iterable[SQLModel], update: Sequence[str]) -> None:
    """Insert, or replace the named columns where the primary key is there."""
    _insert(session, table, rows, update=update)


def _insert(session: Session, table: type[SQLModel], rows: Iterable[SQLModel], update: Sequence[str]) -> set[Any]:
    values = [row.model_dump() for row in rows]
    columns = table.__table__.columns  # type: ignore[attr-defined]
    keys = [column for column in columns if column.primary_key]
    for value in values:
        for column in columns:
            if column.autoincrement is True and value.get(column.name) is None:
                value.pop(column.name, None)
    done: set[Any] = set()
    size = max(1, _SQLITE_VARIABLES // max(1, len(columns)))
    insert = _INSERT[session.get_bind().dialect.name]
    for start in range(0, len(values), size):
        statement = insert(table).values(values[start : start + size])
        if update:
            statement = statement.on_conflict_do_update(
                index_elements=keys, set_={name: statement.excluded[name] for name in update}
            )
        else:
            statement = statement.on_conflict_do_nothing(index_elements=keys)
        done.update(row[0] for row in session.execute(statement.returning(keys[0])))
    return done
