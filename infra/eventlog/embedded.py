"""The event log without a broker: topics, groups and offsets in one SQLite file, shared by all processes of a machine.

Enters: entries. Leaves: messages in order per key. Goes wrong: `Retry` when the disk is full, the file read-only or locked
for long, `UnknownName` for a topic that nobody created. Open it after a fork, not before.

Retention is not automatic: whoever runs the deployment calls `trim` now and then.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from contracts.errors import UnknownName
from contracts.topics import Topic
from infra.clock import Clock, system_clock, to_ms
from infra.eventlog.embedded_consumer import EmbeddedConsumer
from infra.eventlog.embedded_file import LogFile
from infra.eventlog.embedded_group import GroupSeat
from infra.eventlog.port import Consumer, Entry, Message, OnAssigned, Partition

ENDS = "SELECT partition, next_offset FROM partitions WHERE topic_id = ?"

SOME = (
    "SELECT offset, key, value, timestamp_ms FROM records WHERE topic_id = ? AND partition = ? AND offset >= ? AND offset < ?"
    " ORDER BY offset LIMIT 50"
)

TRIM_ROWS = 2000
"""Deleted in one transaction, so that writers wait milliseconds and not seconds."""


class _Topic(NamedTuple):
    id: int
    partitions: int
    turns: Iterator[int]

    def place(self, key: str | None) -> int:
        return next(self.turns) % self.partitions if key is None else partition_of(key, self.partitions)


def partition_of(key: str, partitions: int) -> int:
    """Stable over processes, machines and releases: stored records depend on it."""
    return zlib.crc32(key.encode()) % partitions


class EmbeddedLog:
    """Thread-safe. SQLite lets one write at a time anyway, so all threads share a connection and a lock."""

    def __init__(
        self, path: Path, session_timeout_s: float = 3.0, busy_timeout_s: float = 5.0, clock: Clock = system_clock
    ) -> None:
        self._path = path
        self._session_timeout_s = session_timeout_s
        self._busy_timeout_s = busy_timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._file = LogFile(path, busy_timeout_s)
        self._topics: dict[str, _Topic] = {}

    def ensure(self, topics: Iterable[Topic]) -> None:
        """A topic keeps the partitions that it was created with (another number would break the order per key)."""
        with self._lock, self._file.writing() as connection:
            for topic in topics:
                connection.execute(
                    "INSERT INTO topics (name, partitions, retention_s) VALUES (?, ?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET retention_s = excluded.retention_s",
                    (topic.name, topic.partitions, topic.retention_s),
                )
                topic_id, count = connection.execute("SELECT id, partitions FROM topics WHERE name = ?", (topic.name,)).fetchone()
                connection.executemany(
                    "INSERT OR IGNORE INTO partitions (topic_id, partition, next_offset) VALUES (?, ?, 0)",
                    [(topic_id, number) for number in range(count)],
                )

    def append(self, topic: str, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        with self._lock:
            known = self._known(topic)
            placed: dict[int, list[Entry]] = {}
            for entry in entries:
                placed.setdefault(known.place(entry.key), []).append(entry)
            with self._file.writing() as connection:
                now_ms = to_ms(self._clock())
                for number, group in placed.items():
                    (start,) = connection.execute(
                        "UPDATE partitions SET next_offset = next_offset + ? WHERE topic_id = ? AND partition = ?"
                        " RETURNING next_offset - ?",
                        (len(group), known.id, number, len(group)),
                    ).fetchone()
                    connection.executemany(
                        "INSERT INTO records (topic_id, partition, offset, key, value, timestamp_ms) VALUES (?, ?, ?, ?, ?, ?)",
                        [(known.id, number, offset, key, value, now_ms) for offset, (key, value) in enumerate(group, start)],
                    )

    def consumer(self, group: str, topics: Sequence[str], on_assigned: OnAssigned | None = None) -> Consumer:
        with self._lock:
            known = {topic: self._known(topic) for topic in topics}
        file = LogFile(self._path, self._busy_timeout_s)
        seat = GroupSeat(file, group, {name: topic.partitions for name, topic in known.items()}, self._session_timeout_s)
        return EmbeddedConsumer(file, seat, group, {name: topic.id for name, topic in known.items()}, on_assigned)

    def scan(self, topic: str, starts: Mapping[Partition, int] | None = None) -> Iterator[Message]:
        for place, end in sorted(self.ends(topic).items()):
            position = (starts or {}).get(place, 0)
            while position < end:
                found = self._some(place, position, end)
                if not found:
                    break
                yield from found
                position = found[-1].offset + 1

    def ends(self, topic: str) -> dict[Partition, int]:
        with self._lock:
            known = self._known(topic)
            with self._file.reading() as connection:
                rows = connection.execute(ENDS, (known.id,)).fetchall()
        return {Partition(topic, number): end for number, end in rows}

    def committed(self, group: str, topic: str) -> dict[Partition, int]:
        with self._lock:
            known = self._known(topic)
            with self._file.reading() as connection:
                rows = connection.execute(
                    "SELECT partition, next_offset FROM committed WHERE group_name = ? AND topic_id = ?", (group, known.id)
                ).fetchall()
        return {Partition(topic, number): 0 for number in range(known.partitions)} | {
            Partition(topic, number): offset for number, offset in rows
        }

    def behind(self, group: str, topic: str) -> int:
        committed = self.committed(group, topic)
        return sum(end - committed[place] for place, end in self.ends(topic).items())

    def trim(self, now_s: float | None = None) -> int:
        """Delete what is older than its topic's retention; answers how many records went. Offsets are never used again."""
        now_ms = int((time.time() if now_s is None else now_s) * 1000)
        with self._lock, self._file.reading() as connection:
            places = connection.execute(
                "SELECT topic_id, partition, retention_s FROM partitions JOIN topics ON topics.id = topic_id"
            ).fetchall()
        gone = 0
        for topic_id, number, retention_s in places:
            while deleted := self._trim_some(topic_id, number, now_ms - retention_s * 1000):
                gone += deleted
        return gone

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _some(self, place: Partition, start: int, end: int) -> list[Message]:
        with self._lock:
            known = self._known(place.topic)
            with self._file.reading() as connection:
                rows = connection.execute(SOME, (known.id, place.number, start, end)).fetchall()
        return [Message(place.topic, place.number, *row) for row in rows]

    def _trim_some(self, topic_id: int, number: int, before_ms: int) -> int:
        """From the oldest on, until the first that is young enough: what is left has no gaps."""
        with self._lock, self._file.writing() as connection:
            rows = connection.execute(
                "SELECT offset, timestamp_ms FROM records WHERE topic_id = ? AND partition = ? ORDER BY offset LIMIT ?",
                (topic_id, number, TRIM_ROWS),
            ).fetchall()
            old = [offset for offset, _ in itertools.takewhile(lambda row: row[1] < before_ms, rows)]
            if not old:
                return 0
            return connection.execute(
                "DELETE FROM records WHERE topic_id = ? AND partition = ? AND offset <= ?", (topic_id, number, old[-1])
            ).rowcount

    def _known(self, name: str) -> _Topic:
        """Cached: a topic never goes and never changes its partitions."""
        if name not in self._topics:
            with self._file.reading() as connection:
                row = connection.execute("SELECT id, partitions FROM topics WHERE name = ?", (name,)).fetchone()
                if row is None:
                    names = [other for (other,) in connection.execute("SELECT name FROM topics ORDER BY name").fetchall()]
                    raise UnknownName(f"no topic is called {name!r}; there are: {', '.join(names) or 'none yet'}")
            topic_id, partitions = row
            self._topics[name] = _Topic(topic_id, partitions, itertools.count(random.randrange(2**16)))
        return self._topics[name]
