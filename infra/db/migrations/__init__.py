"""The schema of a database, and how an older one becomes today's.

Enters: a connection inside a transaction. Leaves: every table in place, and the revision it stands for in `slipstream_version`.
A fresh database is made from the tables at once; Alembic, which takes a while to import, is needed only where a database of an
older revision must be brought up. What can go wrong: a database that this code cannot know is a `StartError`, and is left alone.

A change of tables is a new file in `versions/`: `python -m infra.db.migrations "what changed"` writes it, a person reads it.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select, text
from sqlmodel import SQLModel

from contracts.errors import StartError
from infra.db import tables

HEAD = "0001"
"""The newest revision in `versions/`; written here so that a start need not import Alembic to know it."""

VERSION_TABLE = "slipstream_version"
"""Not Alembic's usual name: MLflow keeps its own under that one and may share the database."""

_LOCK = 0x511D57

_version = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)


def revision(connection: Connection) -> str | None:
    """What the database says of itself."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(select(_version.c.version_num)).scalar_one_or_none()


def to_head(connection: Connection) -> None:
    """Several processes may come here at once: on SQLite they already queue for the write lock, on PostgreSQL they do so here."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    found = revision(connection)
    if found == HEAD:
        return
    if found is None:
        _make(connection)
        return
    from infra.db.migrations.upgrade import upgrade

    upgrade(connection, found)


def _make(connection: Connection) -> None:
    ours = tables.all_tables()
    there = set(inspect(connection).get_table_names()) & {table.name for table in ours}
    if there:
        raise StartError(
            f"the database has tables of Slipstream ({', '.join(sorted(there)[:3])}, ...) but does not say of which version: it was"
            " made before there were migrations. Name another database, or remove this one."
        )
    SQLModel.metadata.create_all(connection, tables=ours, checkfirst=False)
    _version.create(connection)
    connection.execute(insert(_version).values(version_num=HEAD))
