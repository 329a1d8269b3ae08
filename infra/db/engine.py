"""Open a database and begin transactions, the same way on SQLite and PostgreSQL.

Enters: a SQLAlchemy URL. Leaves: sessions. `writing` takes SQLite's write lock at once, so that two processes queue instead of
failing at commit; `reading` never blocks. What can go wrong: a locked, full or absent database raises `Retry` with one sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlmodel import Session, SQLModel, create_engine

from contracts.errors import Retry
from infra.db import tables

_WRITES = "slipstream_writes"


def open_db(url: str) -> Engine:
    """An engine with every table in place."""
    if url.startswith("sqlite:///"):
        Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(url, hide_parameters=True, connect_args={"timeout": 30, "check_same_thread": False})
        _tune_sqlite(engine)
    else:
        engine = create_engine(url, hide_parameters=True, pool_pre_ping=True)
    with _explained(), engine.execution_options(**{_WRITES: True}).begin() as connection:
        SQLModel.metadata.create_all(connection, tables=tables.all_tables())
    return engine


def _tune_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _on_connect(dbapi: Any, _record: Any) -> None:
        dbapi.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=30000"):
            dbapi.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """A transaction that commits when the block ends and leaves nothing when it raises."""
    with _explained(), Session(engine.execution_options(**{_WRITES: True}), expire_on_commit=False) as session, session.begin():
        yield session


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """A consistent look at what has been committed."""
    with _explained(), Session(engine, expire_on_commit=False) as session:
        yield session


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        raise Retry(f"the database cannot be used now: {error.orig}") from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise Retry(f"the connection to the database was lost: {error.orig}") from error
        raise
