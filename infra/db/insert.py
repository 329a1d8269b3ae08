"""Bulk inserts that are harmless when repeated, on SQLite and PostgreSQL.

Rows go in the order of their keys, so that two writers of the same keys queue instead of locking each other out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, SQLModel

_INSERT: dict[str, Callable[..., Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

Row = SQLModel | Mapping[str, Any]
"""A row, or its columns by name where so many are made that the object would cost more than the row."""


def insert_new(session: Session, table: type[SQLModel], rows: Iterable[Row]) -> set[Any]:
    """Insert the rows whose primary key is not there yet; answers the first key column of those that were inserted."""
    keys, values = _prepared(table, rows)
    if not values:
        return set()
    statement = _INSERT[session.get_bind().dialect.name](table.__table__)  # type: ignore[attr-defined]
    statement = statement.on_conflict_do_nothing(index_elements=keys).returning(keys[0])
    return set(session.execute(statement, values).scalars())


def upsert(session: Session, table: type[SQLModel], rows: Iterable[Row], update: Sequence[str]) -> None:
    """Insert, or replace the named columns where the primary key is there. One row per key."""
    keys, values = _prepared(table, rows)
    if not values:
        return
    statement = _INSERT[session.get_bind().dialect.name](table.__table__)  # type: ignore[attr-defined]
    replaced = {name: statement.excluded[name] for name in update}
    session.execute(statement.on_conflict_do_update(index_elements=keys, set_=replaced).returning(keys[0]), values)


def _prepared(table: type[SQLModel], rows: Iterable[Row]) -> tuple[list[Any], list[dict[str, Any]]]:
    """The key columns, and what to insert; a number that the database hands out is left to it."""
    whole = table.__table__  # type: ignore[attr-defined]
    keys = list(whole.primary_key)
    names = [column.name for column in whole.columns if column is not whole.autoincrement_column]
    values = [dict(row) if isinstance(row, Mapping) else {name: getattr(row, name) for name in names} for row in rows]
    if whole.autoincrement_column is None:
        values.sort(key=lambda value: tuple(value[key.name] for key in keys))
    return keys, values
