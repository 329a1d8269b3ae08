"""Collectors on a real Kafka: side by side, through a killed broker, through their own kill -9."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from contracts.outcome import Outcome
from contracts.topics import OUTCOMES
from infra.eventlog.open import open_log_at
from tests.collector import BATCH, cloud_event
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.integration
START_S = 90.0


class Collector:
    """A process of its own; several may share a home."""

    def __init__(self, home: Path, bootstrap: str) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = int(found.getsockname()[1])
        environment = os.environ | {
            "SLIPSTREAM_HOME": str(home),
            "SLIPSTREAM_LOG_URL": f"kafka://{bootstrap}",
            "SLIPSTREAM_PORT_BASE": str(self.port - 1),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "ingest", "collect"]
        self.process = subprocess.Popen(command, env=environment, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            try:
                httpx.get(f"http://127.0.0.1:{self.port}/health")
                return
            except httpx.TransportError:
                assert self.process.poll() is None, "the collector ended"
                time.sleep(0.1)
        raise AssertionError("the collector did not start")

    def post(self, events: list[dict[str, Any]]) -> list[str]:
        headers = {"content-type": BATCH}
        answer = httpx.post(f"http://127.0.0.1:{self.port}/v1/events", content=json.dumps(events), headers=headers, timeout=60)
        return [fate["status"] for fate in answer.json()["results"]]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path, kafka: Any) -> Iterator[Callable[[], Collector]]:
    started: list[Collector] = []

    def run() -> Collector:
        started.append(Collector(tmp_path / "home", kafka.bootstrap))
        return started[-1]

    yield run
    for collector in started:
        if collector.process.poll() is None:
            collector.kill()


def events(episode: str, first: int, number: int) -> list[dict[str, Any]]:
    return [cloud_event("shown", f"{episode}-{count}", turnid=f"{episode}.1-1") for count in range(first, first + number)]


def stored(kafka: Any, folder: Path, episode: str, number: int) -> list[str]:
    """Ids of an episode's events, each where it came first, once there are `number` of them."""
    log = open_log_at(f"kafka://{kafka.bootstrap}", folder / "payloads")
    consumer = log.consumer(f"test-{episode}", [OUTCOMES.name])
    found: dict[str, None] = {}
    deadline = time.monotonic() + START_S
    while len(found) < number and time.monotonic() < deadline:
        for message in consumer.poll(0.5):
            outcome = Outcome.decode(message.value)
            if outcome.episode_id == episode:
                found[outcome.event_id] = None
    consumer.close()
    log.close()
    return list(found)


def test_collectors_side_by_side_take_events_of_one_episode(kafka: Any, tmp_path: Path, start: Callable[[], Collector]) -> None:
    collectors = [start(), start()]
    for first in range(0, 200, 20):
        for offset, collector in enumerate(collectors):
            assert collector.post(events("ep-both", first + 10 * offset, 10)) == ["taken"] * 10
    assert stored(kafka, tmp_path, "ep-both", 200) == [f"ep-both-{number}" for number in range(200)]


def test_a_killed_broker_and_a_killed_collector_lose_nothing_and_keep_the_order(
    kafka: Any, tmp_path: Path, start: Callable[[], Collector]
) -> None:
    if not kafka.ours:
        pytest.skip("the broker is somebody else's: not ours to kill")
    first = start()
    assert first.post(events("ep-kill", 0, 10)) == ["taken"] * 10
    kafka.kill()
    began = time.monotonic()
    assert first.post(events("ep-kill", 10, 10)) == ["taken"] * 10
    assert time.monotonic() - began < 15, "a broker that is away is not waited for"
    assert first.post(events("ep-kill", 20, 10)) == ["taken"] * 10
    first.kill()
    second = start()
    assert second.post(events("ep-kill", 30, 10)) == ["taken"] * 10
    kafka.start()
    spool = tmp_path / "home" / "spool"
    deadline = time.monotonic() + START_S
    while list(spool.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not list(spool.iterdir()), "the spool drains by itself"
    assert second.post(events("ep-kill", 40, 10)) == ["taken"] * 10
    assert stored(kafka, tmp_path, "ep-kill", 50) == [f"ep-kill-{number}" for number in range(50)]
