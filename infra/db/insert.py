"""Bulk inserts, harmless when repeated, on SQLite and PostgreSQL.

Enters: rows, as objects or, where so many are made that the object would cost more than the row, as columns by name. Rows with
keys of their own go in the order of their keys, so that two writers of the same keys queue instead of locking each other out.
On PostgreSQL each column travels as one array: the statement stays the same whatever the number of rows, and is parsed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Table, TypeDecorator, bindparam, column, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, SQLModel

Row = SQLModel | Mapping[str, Any]
Values = list[Mapping[str, Any]]


def insert_all(session: Session, table: type[SQLModel], rows: Iterable[Row]) -> None:
    """Insert rows that cannot be there yet, in their order."""
    whole, values = _prepared(table, rows)
    if values:
        statement, given = _statement(session, whole, values)
        session.execute(statement, given)


def insert_new(session: Session, table: type[SQLModel], rows: Iterable[Row]) -> set[Any]:
    """Insert the rows whose primary key is not there yet; answers the first key column of those that were inserted."""
    whole, values = _prepared(table, rows)
    if not values:
        return set()
    statement, given = _statement(session, whole, values)
    keys = list(whole.primary_key)
    return set(session.execute(statement.on_conflict_do_nothing(index_elements=keys).returning(keys[0]), given).scalars())


def upsert(session: Session, table: type[SQLModel], rows: Iterable[Row], update: Sequence[str]) -> None:
    """Insert, or replace the named columns where the primary key is there. One row per key."""
    whole, values = _prepared(table, rows)
    if not values:
        return
    statement, given = _statement(session, whole, values)
    replaced = {name: statement.excluded[name] for name in update}
    session.execute(statement.on_conflict_do_update(index_elements=list(whole.primary_key), set_=replaced), given)


def _prepared(table: type[SQLModel], rows: Iterable[Row]) -> tuple[Table, Values]:
    """What to insert where; a number that the database hands out is left to it."""
    whole: Table = table.__table__  # type: ignore[attr-defined]
    names = [one.name for one in whole.columns if one is not whole.autoincrement_column]
    values = [row if isinstance(row, Mapping) else {name: getattr(row, name) for name in names} for row in rows]
    if whole.autoincrement_column is None:
        values.sort(key=itemgetter(*(key.name for key in whole.primary_key)))
    return whole, values


def _statement(session: Session, whole: Table, values: Values) -> tuple[Any, Any]:
    if session.get_bind().dialect.name == "sqlite":
        return sqlite.insert(whole), values
    names = list(values[0])
    types = {name: _plain(whole.columns[name].type) for name in names}
    arrays = {name: _array(types[name].python_type, [value[name] for value in values]) for name in names}
    source = func.unnest(*(bindparam(name, type_=postgresql.ARRAY(types[name])) for name in names))
    rows = source.table_valued(*(column(name, types[name]) for name in names)).render_derived(name="told")
    return postgresql.insert(whole).from_select(names, select(*rows.c)), arrays


def _array(kind: type, values: list[Any]) -> list[Any]:
    """Of one type: an array of numbers that are partly whole, or of names that are partly enumerated, could not travel."""
    return [one if one is None or type(one) is kind else kind(one) for one in values]


def _plain(kind: Any) -> Any:
    """The database's own type below a type that Python decorates."""
    return kind.impl_instance if isinstance(kind, TypeDecorator) else kind
