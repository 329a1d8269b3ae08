"""What the clients did, on their own disk: it outlives them, so that a driver that was killed goes on and counts nothing twice.

Enters: answers and the events they lead to, in one transaction per request. Leaves: which request comes next, which events are
still to be sent. Events are kept until the collector has said what became of them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import StartError
from harness.developers.reaction import Answer, Due, Event

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS requests (
    number INTEGER PRIMARY KEY, developer TEXT NOT NULL, version TEXT NOT NULL, verdict INTEGER, characters INTEGER NOT NULL,
    at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS events (
    event_id TEXT PRIMARY KEY, due REAL NOT NULL, sendings INTEGER NOT NULL, body TEXT NOT NULL, fate TEXT);
CREATE INDEX IF NOT EXISTS unsent ON events (due) WHERE sendings > 0;
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An event with the moment (Unix seconds) at which it is to be sent, and how often still."""

    event: Event
    due: float
    sendings: int


class Ledger:
    def __init__(self, file: Path) -> None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(file, isolation_level=None, timeout=30.0)
            self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise StartError(f"cannot keep the developers' ledger in {file}: {error}") from error

    def start(self) -> int:
        """A number for this start; request attempts of different starts never share an episode id."""
        starts = int(self.fact("starts") or 0) + 1
        self.note("starts", str(starts))
        return starts

    def fact(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def note(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def done(self) -> set[int]:
        return {row[0] for row in self._db.execute("SELECT number FROM requests")}

    def answered(self, number: int, developer: str, answer: Answer, verdict: bool | None, now: float, due: Sequence[Due]) -> None:
        """One request is over and its events exist; both or neither."""
        taken = len(answer.text) if verdict else 0
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(
            "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?)",
            (number, developer, answer.version, None if verdict is None else int(verdict), taken, now),
        )
        self._db.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, NULL)",
            [(one.event["id"], now + one.after_s, 2 if one.twice else 1, json.dumps(one.event)) for one in due],
        )
        self._db.execute("COMMIT")

    def waiting(self) -> list[Waiting]:
        rows = self._db.execute("SELECT body, due, sendings FROM events WHERE sendings > 0 ORDER BY due")
        return [Waiting(json.loads(body), due, sendings) for body, due, sendings in rows]

    def settled(self, fates: Sequence[tuple[str, str]]) -> None:
        """(event id, fate) of events that the collector has answered for."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(
            "UPDATE events SET sendings = sendings - 1, fate = ? WHERE event_id = ?", [(fate, event) for event, fate in fates]
        )
        self._db.execute("COMMIT")

    def sent(self) -> int:
        """Distinct events that exist, each of which is sent at least once in the end."""
        return int(self._db.execute("SELECT count(*) FROM events").fetchone()[0])

    def unsent(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM events WHERE sendings > 0").fetchone()[0])

    def requests(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM requests").fetchone()[0])

    def developers_who_met(self, version: str) -> tuple[int, int, int]:
        """Requests that a version answered, developers who ever met it, developers in all."""
        met = self._db.execute("SELECT count(*), count(DISTINCT developer) FROM requests WHERE version = ?", (version,)).fetchone()
        everybody = self._db.execute("SELECT count(DISTINCT developer) FROM requests").fetchone()[0]
        return int(met[0]), int(met[1]), int(everybody)

    def close(self) -> None:
        self._db.close()
