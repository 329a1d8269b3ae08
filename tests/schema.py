"""What a database looks like, for tests that compare two ways to make one."""

from __future__ import annotations

from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect
from sqlmodel import SQLModel

from infra.db import tables
from infra.db.engine import connect, open_db, writing
from infra.db.migrations import VERSION_TABLE
from infra.db.migrations.upgrade import settings
from infra.db.query import Engine

OURS = {table.name for table in tables.all_tables()}


def migrate_from_nothing(url: str) -> Engine:
    """All revisions one after the other, as no start ever does it; opened as a start would."""
    with writing(connect(url)) as session:
        command.upgrade(settings(session.connection()), "head")
    return open_db(url)


def differences(engine: Engine) -> list[Any]:
    """Between the tables of the code and those of the database, as Alembic sees them."""

    def is_ours(_item: object, name: str | None, kind: str, *_: object) -> bool:
        return kind != "table" or name in OURS

    with engine.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection, opts={"include_object": is_ours}), SQLModel.metadata))


def shape(engine: Engine) -> dict[str, Any]:
    """Columns, keys and indexes of each of our tables, as the database tells them."""
    found = inspect(engine)
    return {
        name: {
            "columns": [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(name)],
            "key": found.get_pk_constraint(name)["constrained_columns"],
            "indexes": sorted((i["name"], i["column_names"], i["unique"], _where(i)) for i in found.get_indexes(name)),
        }
        for name in sorted(found.get_table_names())
        if name in OURS or name == VERSION_TABLE
    }


def _where(index: Any) -> str:
    return " ".join(str(value) for name, value in index.get("dialect_options", {}).items() if name.endswith("_where"))
