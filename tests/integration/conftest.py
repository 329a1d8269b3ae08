"""A real Apache Kafka and a real PostgreSQL for the tests of this folder.

Kafka is found by `KAFKA_HOME` (a folder holding `run`), else `../shared/kafka` from the repository's root, else the running broker
that `SLIPSTREAM_KAFKA` names (host:port), else the Tansu broker of the extra `kafka-test`, which is slow and does less; without any
of them the tests that need one are skipped and say so.

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
from tests.contract.eventlog_acts import new_topic, slow_down
from tests.integration.ports import free_port
from tests.integration.postgres import Postgres, find_binaries
from tests.integration.tansu import Tansu, is_installed

START_S = 180.0
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Outside systems take long to start, and some tests kill them and start them again."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))


class Kafka:
    """A broker. `ours`: the tests started it, so they may kill it and start it again on the same folder and port."""

    slowness = 1.0

    def __init__(self, bootstrap: str | None, command: Path | None, folder: Path, port: int | None = None, extra: str = "") -> None:
        """`extra`: more lines for the broker's settings, separated by semicolons."""
        self.ours = command is not None
        self._command = command
        self._folder = folder
        self._extra = extra
        self._process: subprocess.Popen[str] | None = None
        self._port = port or free_port()
        self.bootstrap = bootstrap or ""
        if self.ours:
            self.start()

    def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        with (self._folder / "broker.log").open("a") as errors:
            self._process = subprocess.Popen(
                [str(self._command), str(self._folder), str(self._port)],
                env={**os.environ, "KAFKA_EXTRA": self._extra},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.bootstrap = self._ready(self._process).split()[1]

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


def find_kafka() -> Path | None:
    """The command that starts a broker."""
    command = Path(os.environ.get("KAFKA_HOME") or ROOT.parent / "shared" / "kafka") / "run"
    return command if command.is_file() else None


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka | Tansu]:
    command, running = find_kafka(), os.environ.get("SLIPSTREAM_KAFKA")
    broker: Kafka | Tansu
    if command is not None:
        broker = Kafka(None, command, tmp_path_factory.mktemp("kafka"))
    elif running:
        broker = Kafka(running, None, tmp_path_factory.mktemp("kafka"))
    elif is_installed():
        broker = Tansu(tmp_path_factory.mktemp("tansu"))
    else:
        pytest.skip(
            "no Kafka: neither KAFKA_HOME nor ../shared/kafka holds `run`, SLIPSTREAM_KAFKA names no broker, and the broker of the"
            " extra kafka-test is not installed"
        )
    slow_down(broker.slowness)
    _warm_up(broker.bootstrap)
    yield broker
    slow_down(1.0)
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
