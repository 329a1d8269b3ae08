"""The file under the embedded event log: opening it, its tables, transactions, and what its errors mean.

Enters: a path and SQL. Leaves: rows. Goes wrong: a full disk, a read-only file or a lock held for too long raise `Retry` with
one sentence; a damaged file raises `StartError`. A transaction that did not return is not in the file, whoever was killed
when (WAL); `synchronous=NORMAL` means that a power cut, unlike a killed process, may take back the last moments.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contracts.errors import Retry, SlipstreamError, StartError

PAGE_BYTES = 8192
"""A key and 1 KB of JSON lie in one page of a WITHOUT ROWID table from here on; at 4096 each would spill into a second one."""

TABLES = """
CREATE TABLE IF NOT EXISTS topics (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, partitions INTEGER NOT NULL, retention_s INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS partitions (
    topic_id INTEGER NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
    PRIMARY KEY (topic_id, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS records (
    topic_id INTEGER NOT NULL, partition INTEGER NOT NULL, offset INTEGER NOT NULL,
    timestamp_ms INTEGER NOT NULL, key TEXT, value BLOB NOT NULL,
    PRIMARY KEY (topic_id, partition, offset)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS committed (
    group_name TEXT NOT NULL, topic_id INTEGER NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
    PRIMARY KEY (group_name, topic_id, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups (
    name TEXT PRIMARY KEY, generation INTEGER NOT NULL, changed_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members (
    id INTEGER PRIMARY KEY AUTOINCREMENT, group_name TEXT NOT NULL, topics TEXT NOT NULL,
    seen_ms INTEGER NOT NULL, timeout_ms INTEGER NOT NULL, settled INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS members_of_group ON members (group_name);
PRAGMA user_version = 1;
"""


class LogFile:
    """One connection. Not thread-safe; it may be used from another thread than the one that opened it."""

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        run = self._connection.execute
        run(f"PRAGMA page_size = {PAGE_BYTES}")
        self._to_wal()
        run("PRAGMA synchronous = NORMAL")
        run("PRAGMA journal_size_limit = 67108864")
        if run("PRAGMA user_version").fetchone()[0] == 0:
            self._connection.executescript(f"BEGIN IMMEDIATE; {TABLES} COMMIT;")

    def _to_wal(self) -> None:
        """SQLite does not wait for the lock when two processes turn a new file into a WAL at once, so this does."""
        deadline = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Each statement sees a state of its own."""
        with self._explained():
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, with the write lock from its start: what is read inside cannot change before the commit."""
        with self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk rolls back by itself
                    self._connection.execute("ROLLBACK")
                raise

    def version(self) -> int:
        """Changes whenever another connection committed something; costs microseconds."""
        with self._explained():
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        with self._explained():
            self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            explained = self._explain(error)
            if explained is None:
                raise
            raise explained from error
        except OSError as error:
            raise StartError(f"The event log {self._path} cannot be opened: {error.strerror or error}.") from error

    def _explain(self, error: sqlite3.DatabaseError) -> SlipstreamError | None:
        where = f"The event log {self._path}"
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return Retry(f"{where} is locked: another process held it for more than {self._busy_timeout_s:g} s.")
            case sqlite3.SQLITE_FULL:
                return Retry(f"{where} cannot grow: its disk is full.")
            case sqlite3.SQLITE_READONLY:
                return Retry(f"{where} cannot be written: the file or its folder is read-only for this user.")
            case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN:
                return Retry(f"{where} cannot be read or written: {error}.")
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return StartError(f"{where} is damaged or not an event log ({error}): move it away and start again.")
        return None
