"""Open a database and begin transactions, the same way on SQLite and PostgreSQL.

Enters: a SQLAlchemy URL. Leaves: sessions. `writing` takes SQLite's write lock at once, so that two processes queue instead of
failing at commit; `reading` never blocks. What can go wrong: a locked, full or absent database, and on PostgreSQL a transaction
that lost against another (a deadlock, a serialization failure), raise `Retry` with one sentence; a database that this release
cannot use raises `StartError`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlmodel import Session, create_engine

from contracts.errors import Retry, StartError
from infra.db.migrations import HEAD, revision, to_head

_WRITES = "slipstream_writes"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_POSTGRES = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "application_name": "slipstream",
    # A process that was stopped in the middle of a transaction must not keep its rows from the others for ever.
    "options": "-c timezone=UTC -c lock_timeout=30s -c idle_in_transaction_session_timeout=60s",
}


def open_db(url: str) -> Engine:
    """An engine on a database whose tables are those of this release: made, or brought up, if they were not."""
    engine = connect(url)
    with _explained():
        with engine.connect() as connection:
            if revision(connection) == HEAD:
                return engine
        with engine.execution_options(**{_WRITES: True}).begin() as connection:
            to_head(connection)
    return engine


def connect(url: str) -> Engine:
    """An engine on a database as it is."""
    return _open_sqlite(url) if url.startswith("sqlite:///") else _open_postgres(url)


def _open_sqlite(url: str) -> Engine:
    Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": 30, "check_same_thread": False})
    _tune_sqlite(engine)
    return engine


def _open_postgres(url: str) -> Engine:
    """psycopg is the driver, whichever way the URL names PostgreSQL."""
    try:
        place = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise StartError(
            f"SLIPSTREAM_DB_URL is not a database URL ({error}); for example postgresql://user@host/database"
        ) from error
    if place.get_backend_name() not in ("postgresql", "postgres"):
        raise StartError(f"SLIPSTREAM_DB_URL names {place.get_backend_name()}; there are: sqlite, postgresql")
    place = place.set(drivername="postgresql+psycopg")
    try:
        engine = create_engine(place, hide_parameters=True, pool_pre_ping=True, connect_args=_POSTGRES)
        from psycopg.types.array import ListBinaryDumper
    except ModuleNotFoundError as error:
        raise StartError("PostgreSQL needs its driver: pip install 'slipstream-rl[production]'") from error

    @event.listens_for(engine, "connect")
    def _on_connect(dbapi: Any, _record: Any) -> None:
        dbapi.adapters.register_dumper(list, ListBinaryDumper)  # as text, each quote of each value would be escaped one by one

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
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with _explained(), Session(engine, expire_on_commit=False) as session:
        yield session


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        raise Retry(f"the database cannot be used now: {error.orig}") from error
    except DBAPIError as error:
        if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            raise StartError(f"the database file is damaged or none ({error.orig}); restore it, or move it away") from error
        if error.connection_invalidated:
            raise Retry(f"the connection to the database was lost: {error.orig}") from error
        raise
