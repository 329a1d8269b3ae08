"""The log away: events are taken all the same, onto this disk, and reach the log in order once it is back, whoever was killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from contracts.errors import Poison, Retry
from contracts.topics import OUTCOMES
from infra.eventlog.embedded import EmbeddedLog
from infra.eventlog.port import Entry
from tests.collector import BATCH, cloud_event, collecting, outcomes, refusals, send
from tests.conftest import REPOSITORY
from tests.integration.ports import free_port


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    made = EmbeddedLog(tmp_path / "log.db", busy_timeout_s=0.05)
    yield made
    made.close()


def lock(file: Path) -> sqlite3.Connection:
    """The log is away for everybody else until this is closed."""
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    return holder


def numbered(first: int, number: int) -> list[dict[str, object]]:
    """Of one episode, whose order shows in the log."""
    return [cloud_event("shown", f"e{first + count}") for count in range(number)]


def ids(log: EmbeddedLog) -> list[str]:
    return [outcome.event_id for outcome in outcomes(log)]


def test_events_are_taken_while_the_log_is_away_and_drain_in_order(log: EmbeddedLog, tmp_path: Path) -> None:
    with collecting(log, tmp_path) as client:
        assert send(client, numbered(0, 3)).status_code == 202
        away = lock(tmp_path / "log.db")
        assert send(client, numbered(3, 3)).json()["results"] == [{"id": f"e{n}", "status": "taken"} for n in (3, 4, 5)]
        assert send(client, [cloud_event(event_id="bad", policy="nope"), *numbered(6, 1)]).status_code == 207
        intake = client.app.state.intake  # type: ignore[attr-defined]
        with pytest.raises(Retry):
            intake.drain()
        away.close()
        assert send(client, numbered(7, 2)).status_code == 202, "the log is back, but those before go first"
        assert intake.drain() == 7 and intake.drain() == 0
        assert send(client, numbered(9, 1)).status_code == 202
    assert ids(log) == [f"e{number}" for number in range(10)] and [one.event_id for one in refusals(log)] == ["bad"]
    assert not list((tmp_path / "spool").iterdir())


def test_a_full_spool_is_503_with_retry_after_and_room_comes_back_by_itself(
    log: EmbeddedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with collecting(log, tmp_path, spool_mb=0) as client:
        assert send(client, numbered(0, 1)).status_code == 202
        away = lock(tmp_path / "log.db")
        answer = send(client, numbered(1, 1))
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
        full = "the spool of outcomes holds 0 bytes, its limit"
        assert answer.json()["error"]["message"] == f"nothing was taken, send it again later: {full}"
        assert f"{full}: '{tmp_path / 'spool'}'" in caplog.text, "where it lies is for the log alone"
        assert client.get("/health").json() == {"status": "ready"}
        assert send(client, b"{").status_code == 503, "not even a refusal could be kept"
        away.close()
        assert send(client, numbered(1, 1)).status_code == 202
    assert ids(log) == ["e0", "e1"]


def test_a_disk_that_is_no_use_is_503_too(log: EmbeddedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "spool").write_text("not a folder")
    with collecting(log, tmp_path) as client:
        assert send(client, numbered(0, 1)).status_code == 202
        away = lock(tmp_path / "log.db")
        answer = send(client, numbered(1, 1))
        assert answer.status_code == 503 and str(tmp_path) not in answer.text and str(tmp_path / "spool") in caplog.text
        away.close()


def test_two_collectors_share_a_folder_and_lose_nothing(log: EmbeddedLog, tmp_path: Path) -> None:
    with collecting(log, tmp_path) as one, collecting(log, tmp_path) as two:
        send(one, numbered(0, 1))
        away = lock(tmp_path / "log.db")
        for number, client in enumerate([one, two] * 3, start=1):
            assert send(client, numbered(number, 1)).status_code == 202
        away.close()
        drained = [client.app.state.intake.drain() for client in (one, two)]  # type: ignore[attr-defined]
    assert drained == [3, 3] and sorted(ids(log)) == [f"e{number}" for number in range(7)]


class Picky:
    """A log with a limit of its own."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def append(self, topic: str, entries: list[Entry]) -> None:
        if topic == OUTCOMES.name and any(b'"e1"' in value for _, value in entries):
            raise Poison("too_large", "the broker takes 1 byte")
        self._log.append(topic, entries)


def test_what_the_log_will_never_take_becomes_a_refusal_of_that_event_alone(log: EmbeddedLog, tmp_path: Path) -> None:
    with collecting(Picky(log), tmp_path) as client:  # type: ignore[arg-type]
        fates = send(client, numbered(0, 3)).json()["results"]
    assert [fate["status"] for fate in fates] == ["taken", "refused", "taken"]
    assert (fates[1]["code"], fates[1]["reason"]) == (413, "too_large")
    assert set(ids(log)) == {"e0", "e2"} and [one.refusal_id for one in refusals(log)] == ["e1"]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def start(tmp_path: Path, port: int) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """A collector in a process of its own, ready to take events."""
    started: list[subprocess.Popen[bytes]] = []

    def run() -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "SLIPSTREAM_HOME": str(tmp_path),
            "SLIPSTREAM_PORT_BASE": str(port - 1),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "ingest", "collect"]
        process = subprocess.Popen(command, env=environment, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
        started.append(process)
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{port}/health")
                return process
            except httpx.TransportError:
                assert process.poll() is None, "the collector ended"
                time.sleep(0.1)
        raise AssertionError("the collector did not start")

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_killed_with_a_full_spool_it_starts_without_the_log_and_hands_over_everything_in_order(
    log: EmbeddedLog, tmp_path: Path, port: int, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    def post(events: list[dict[str, object]]) -> int:
        body, headers = json.dumps(events), {"content-type": BATCH}
        return httpx.post(f"http://127.0.0.1:{port}/v1/events", content=body, headers=headers, timeout=60).status_code

    first = start()
    assert post(numbered(0, 2)) == 202
    away = lock(tmp_path / "log.db")
    assert post(numbered(2, 3)) == 202
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = start()
    assert post(numbered(5, 2)) == 202, "the log is still away"
    away.close()
    deadline = time.monotonic() + 60
    while list((tmp_path / "spool").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert post(numbered(7, 1)) == 202
    second.terminate()
    assert second.wait(60) == 0
    assert ids(log) == [f"e{number}" for number in range(8)]
