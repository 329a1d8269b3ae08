"""Read by Alembic before it does anything: which tables are ours, and that it works on the connection it is given.

Enters: a connection in the configuration's attributes, inside the caller's transaction. Leaves: what Alembic was asked for, done
in that transaction; the caller commits.
"""

from __future__ import annotations

from typing import Literal

from alembic import context
from sqlmodel import AutoString, SQLModel

from infra.db import tables
from infra.db.migrations import VERSION_TABLE

OURS = {table.name for table in tables.all_tables()}


def is_ours(_item: object, name: str | None, kind: str, _reflected: bool, _compared_to: object) -> bool:
    """Other tables may live in the same database."""
    return kind != "table" or name in OURS


def plainly(kind: str, item: object, _context: object) -> str | Literal[False]:
    """SQLModel's own name for a text column is no part of a schema."""
    return "sa.String()" if kind == "type" and isinstance(item, AutoString) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    version_table=VERSION_TABLE,
    include_object=is_ours,
    render_as_batch=True,
    render_item=plainly,
)
context.run_migrations()
