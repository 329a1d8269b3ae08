"""Turns are durable before answers leave, whatever happens to the log and to this process."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.errors import Retry
from contracts.topics import TURNS
from contracts.turn import Turn
from infra.db.engine import open_db, reading
from infra.db.tables.stream import CounterRow
from infra.eventlog.embedded import EmbeddedLog
from infra.eventlog.port import Entry
from serving.capture import Capture
from serving.counts import Counts
from serving.spool import Spool
from tests.conftest import REPOSITORY, make_turn


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
        return sorted(turn.turn_id for turn in turns), await asyncio.gather(*(capture.store(turn) for turn in turns))

    return asyncio.run(run())


def test_what_is_stored_is_in_the_log(log: EmbeddedLog, tmp_path: Path) -> None:
    counts = Counts()
    capture = Capture(log, Spool(tmp_path / "spool", "boot-1"), 1, counts, gather_ms=2.0)
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
    capture = Capture(log, Spool(tmp_path / "spool", "boot-1"), 1, Counts(), gather_ms=1.0)
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
    capture = Capture(log, Spool(tmp_path / "spool", "boot-1"), 1, counts, gather_ms=1.0)
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


KILLED = """
import os, signal, sys
from pathlib import Path
from infra.eventlog.port import Entry
from serving.spool import Spool
spool = Spool(Path(sys.argv[1]), "boot-7")
for number in range(5):
    spool.add([Entry("ep", b'{"n": %d}' % number)])
print(5, flush=True)
spool._writing.write(b'ep\\t{"n": 5, "cut')
spool._writing.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_its_spool_to_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder)], capture_output=True, cwd=REPOSITORY, env={**os.environ}, check=False
    )
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, b"5\n"), killed.stderr
    taken: list[Entry] = []

    def append(entries: object) -> None:
        taken.extend(entries)  # type: ignore[call-overload]

    def away(_: object) -> None:
        raise Retry("away")

    following = Spool(folder, "boot-8")
    with pytest.raises(Retry):
        following.drain(away)
    assert following.drain(append) == 5, "each acknowledged line, and not the one that was cut"
    assert taken == [Entry("ep", b'{"n": %d}' % number) for number in range(5)]
    assert not list(folder.glob("*")) and following.drain(append) == 0


def test_a_spool_in_use_is_left_to_its_owner(tmp_path: Path) -> None:
    owner, other = Spool(tmp_path, "boot-1"), Spool(tmp_path, "boot-2")
    owner.add([Entry("ep", b"{}")])
    taken: list[Entry] = []
    assert other.drain(taken.extend) == 0
    assert owner.drain(taken.extend) == 1 and taken == [Entry("ep", b"{}")]
    assert not owner.holds


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
