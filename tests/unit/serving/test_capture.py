"""Turns are durable before answers leave, whatever happens to the log and to this process."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.errors import Retry
from contracts.topics import TURNS
from contracts.turn import Turn
from infra.db.engine import open_db, reading
from infra.db.tables.stream import CounterRow
from infra.eventlog.embedded import EmbeddedLog
from infra.spool import Spool
from serving.capture import Capture
from serving.counts import Counts
from tests.conftest import make_turn


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    made = EmbeddedLog(tmp_path / "log.db", busy_timeout_s=0.05)
    yield made
    made.close()


def lock(log_file: Path) -> sqlite3.Connection:
    """The log is away for everybody else while this is open."""
    holder = sqlite3.connect(log_file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    return holder


def read(log: EmbeddedLog) -> list[bytes]:
    total = sum(log.ends(TURNS.name).values())
    consumer, found = log.consumer("reader", [TURNS.name]), []
    while len(found) < total:
        found += [message.value for message in consumer.poll(0.1)]
    consumer.close()
    return found


def ids(values: list[bytes]) -> list[str]:
    return sorted(Turn.decode(value).turn_id for value in values)


def store(capture: Capture, count: int) -> tuple[list[str], list[bool]]:
    async def run() -> tuple[list[str], list[bool]]:
        turns = []
        for number in range(count):
            episode = f"ep-{number % 3}"
            turns.append(make_turn(episode, n=capture.next_turn_id(episode).rpartition(".")[2]))
        return sorted(turn.turn_id for turn in turns), await asyncio.gather(*(capture.store(turn, lambda: "") for turn in turns))

    return asyncio.run(run())


def test_what_is_stored_is_in_the_log(log: EmbeddedLog, tmp_path: Path) -> None:
    counts = Counts()
    capture = Capture(log, Spool(tmp_path / "spool", "boot-1", TURNS.name), 1, counts, gather_ms=2.0)
    names, stored = store(capture, 50)
    assert len(set(names)) == 50 and all(stored) and ids(read(log)) == names
    capture.close()
    database = open_db(f"sqlite:///{tmp_path / 'db'}")
    counts.flush(database)
    counts.flush(database)
    with reading(database) as session:
        row = session.get(CounterRow, ("tab", "turns_captured"))
    assert row is not None and row.count == 50
    assert not list(tmp_path.glob("spool/*"))


def test_the_log_away_fails_no_answer_and_loses_no_turn(log: EmbeddedLog, tmp_path: Path) -> None:
    capture = Capture(log, Spool(tmp_path / "spool", "boot-1", TURNS.name), 1, Counts(), gather_ms=1.0)
    away = lock(tmp_path / "log.db")
    first, stored = store(capture, 20)
    assert all(stored) and len(list(tmp_path.glob("spool/*"))) == 1
    with pytest.raises(Retry):
        capture.drain()
    second, stored = store(capture, 5)
    assert all(stored)
    away.execute("ROLLBACK")
    assert capture.drain() == 25 and capture.drain() == 0
    assert not list(tmp_path.glob("spool/*"))
    third, _ = store(capture, 4)
    capture.close()
    assert ids(read(log)) == sorted(first + second + third)


def test_neither_log_nor_disk_is_counted_as_a_loss(log: EmbeddedLog, tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("not a folder")
    counts = Counts()
    capture = Capture(log, Spool(tmp_path / "spool", "boot-1", TURNS.name), 1, counts, gather_ms=1.0)
    away = lock(tmp_path / "log.db")
    _, stored = store(capture, 3)
    assert stored == [False] * 3
    away.execute("ROLLBACK")
    capture.close()
    database = open_db(f"sqlite:///{tmp_path / 'db'}")
    counts.flush(database)
    with reading(database) as session:
        row = session.get(CounterRow, ("tab", "turns_lost"))
    assert row is not None and row.count == 3


def test_counts_survive_a_database_that_is_away(tmp_path: Path) -> None:
    file = tmp_path / "db"
    database = open_db(f"sqlite:///{file}")
    counts = Counts()
    counts.add("tab", "turns_pinned", 3)
    with pytest.raises(Retry):
        counts.flush(open_broken(tmp_path))
    counts.add("tab", "turns_pinned")
    counts.flush(database)
    with reading(database) as session:
        row = session.get(CounterRow, ("tab", "turns_pinned"))
    assert row is not None and row.count == 4


def open_broken(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A database whose table went away."""
    engine = open_db(f"sqlite:///{tmp_path / 'broken'}")
    with sqlite3.connect(tmp_path / "broken") as connection:
        connection.execute("DROP TABLE stream_counters")
    return engine
