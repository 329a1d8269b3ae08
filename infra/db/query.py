"""The words of a query, for stages: they say what they want and leave the library to this package."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    ARRAY,
    Boolean,
    Dialect,
    Engine,
    String,
    TypeDecorator,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    or_,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal
from sqlmodel import Session, col, select

__all__ = ["UNSEEN", "Engine", "Session", "among", "and_", "case", "col", "delete", "exists", "func", "or_", "select", "update"]


UNSEEN = {"synchronize_session": False}
"""Options of a change to many rows of which the session holds none: else it reads back which they were."""


def among(column: Any, names: Iterable[str]) -> ColumnElement[bool]:
    """Whether a text column holds one of these. They travel as one value, so that the statement is the same for any number of
    them: written out one by one, a few hundred cost more than what is done with them."""
    return _Among(column, list(names))


class _Names(TypeDecorator[list[str]]):
    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(ARRAY(String()) if dialect.name == "postgresql" else String())

    def process_bind_param(self, value: list[str] | None, dialect: Dialect) -> Any:
        return value if dialect.name == "postgresql" else json.dumps(value)


class _Among(ColumnElement[bool]):
    inherit_cache = True
    type = Boolean()
    _traverse_internals = [("column", InternalTraversal.dp_clauseelement), ("names", InternalTraversal.dp_clauseelement)]  # noqa: RUF012

    def __init__(self, column: Any, names: list[str]) -> None:
        self.column = column
        self.names = bindparam(None, names, type_=_Names(), unique=True)


@compiles(_Among, "postgresql")
def _in_array(element: _Among, compiler: Any, **more: Any) -> str:
    return f"{compiler.process(element.column, **more)} = ANY ({compiler.process(element.names, **more)})"


@compiles(_Among)
def _in_list(element: _Among, compiler: Any, **more: Any) -> str:
    return f"{compiler.process(element.column, **more)} IN (SELECT value FROM json_each({compiler.process(element.names, **more)}))"
