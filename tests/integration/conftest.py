"""A real Apache Kafka and a real PostgreSQL for the tests of this folder.

Kafka is found by `KAFKA_HOME` (a folder holding `run`), else `../shared/kafka` from the repository's root, else the running broker
that `SLIPSTREAM_KAFKA` names (host:port); without any of them the tests that need one are skipped and say so.

PostgreSQL is found as `initdb` and `postgres` below /usr/lib/postgresql or on the PATH, unless `SLIPSTREAM_POSTGRES`
names a running server (a URL whose user may create databases).
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.eventlog.open import open_log
from infra.settings import Settings
from tests.contract.eventlog_acts import new_topic
from tests.integration.postgres import Postgres, find_binaries

START_S = 60.0
ROOT = Path(__file__).resolve().parents[2]


class Kafka:
    """A broker. `ours`: the tests started it, so they may kill it and start it again on the same folder and port."""

    def __init__(self, bootstrap: str | None, command: Path | None, folder: Path) -> None:
        self.ours = command is not None
        self._command = command
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self.bootstrap = bootstrap or ""
        if self.ours:
            self.start()

    def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        with (self._folder / "broker.log").open("a") as errors:
            self._process = subprocess.Popen(
                [str(self._command), str(self._folder), str(self._port)], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.bootstrap = self._ready(self._process).split()[1]
        self._port = int(self.bootstrap.rpartition(":")[2])

    def _ready(self, process: subprocess.Popen[str]) -> str:
        """`ready HOST:PORT pid PID`, from a process that may also end or hang instead."""
        assert process.stdout is not None
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and process.poll() is None:
            if select.select([process.stdout], [], [], 0.2)[0]:
                line = process.stdout.readline()
                if line.startswith("ready "):
                    return line
        self.kill()
        raise RuntimeError(f"Kafka did not start: {(self._folder / 'broker.log').read_text()[-2000:]}")

    def kill(self) -> None:
        """A crash: SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    home = Path(os.environ.get("KAFKA_HOME") or ROOT.parent / "shared" / "kafka")
    running = os.environ.get("SLIPSTREAM_KAFKA")
    if (home / "run").is_file():
        broker = Kafka(None, home / "run", tmp_path_factory.mktemp("kafka"))
    elif running:
        broker = Kafka(running, None, tmp_path_factory.mktemp("kafka"))
    else:
        pytest.skip(f"no Kafka: {home} has no `run`, and neither KAFKA_HOME nor SLIPSTREAM_KAFKA is set")
    _warm_up(broker.bootstrap)
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    binaries, running = find_binaries(), os.environ.get("SLIPSTREAM_POSTGRES")
    if running:
        server = Postgres(running)
    elif binaries is not None:
        server = Postgres(None, binaries)
    else:
        pytest.skip("no PostgreSQL: neither initdb and postgres are installed nor is SLIPSTREAM_POSTGRES set")
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """An empty database."""
    return postgres.new_database()


def _warm_up(bootstrap: str) -> None:
    """A new broker makes its table of groups when first asked for one; that belongs to the start, not to the first test."""
    log = open_log(Settings(log_url=f"kafka://{bootstrap}"))
    topic = new_topic(partitions=1)
    log.ensure([topic])
    log.committed("warm-up", topic.name)
    log.close()
