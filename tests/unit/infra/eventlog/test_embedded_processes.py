"""Several processes on one embedded log, some of them killed in the middle of it: nothing that was promised is lost."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from contracts.outcome import Refusal
from contracts.topics import Topic
from infra.eventlog.embedded import EmbeddedLog
from infra.eventlog.port import Partition
from tests.contract.eventlog_acts import take

TOPIC = Topic("events", Refusal, "refusal_id", 3, 3600)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    log = EmbeddedLog(path)
    log.ensure([TOPIC])
    log.close()
    return path


def appender(path: Path, name: str, batch: int, calls: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.unit.infra.eventlog.appender", str(path), TOPIC.name, name, str(batch), str(calls)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_all(path: Path) -> dict[str, list[str]]:
    """What each key carries, after a look that no partition has a gap."""
    log = EmbeddedLog(path)
    ends = log.ends(TOPIC.name)
    consumer = log.consumer("reader", [TOPIC.name])
    by_key: dict[str, list[str]] = defaultdict(list)
    offsets: dict[Partition, list[int]] = defaultdict(list)
    for message in take(consumer, sum(ends.values())):
        by_key[str(message.key)].append(message.value.decode())
        offsets[message.place].append(message.offset)
    consumer.close()
    log.close()
    assert all(offsets[place] == list(range(end)) for place, end in ends.items())
    return by_key


def test_processes_that_append_at_once_lose_nothing(path: Path) -> None:
    batches = {"a": (1, 150), "b": (7, 60), "c": (100, 20)}
    processes = [appender(path, name, batch, calls) for name, (batch, calls) in batches.items()]
    for process in processes:
        _, errors = process.communicate(timeout=110)
        assert process.returncode == 0, errors
    assert read_all(path) == {name: [f"{name}-{n}" for n in range(batch * calls)] for name, (batch, calls) in batches.items()}


def test_a_kill_in_the_middle_of_an_append_loses_nothing_that_returned(path: Path) -> None:
    chance = random.Random(7)
    promised: dict[str, int] = {}
    for round_ in range(4):
        processes = {f"{round_}-{which}": appender(path, f"{round_}-{which}", batch, 0) for which, batch in enumerate((1, 250))}
        for name, process in processes.items():
            assert process.stdout is not None
            for _ in range(chance.randrange(5, 40)):
                promised[name] = int(process.stdout.readline())
        for name, process in processes.items():
            process.kill()
            rest, _ = process.communicate()
            told = [int(line) for line in rest.split("\n")[:-1] if line]
            promised[name] = max([promised[name], *told])
    found = read_all(path)
    for name, least in promised.items():
        batch = 250 if name.endswith("1") else 1
        assert found[name] == [f"{name}-{n}" for n in range(len(found[name]))]
        assert len(found[name]) >= least and len(found[name]) % batch == 0
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
