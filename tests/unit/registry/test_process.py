"""`python -m registry` as it is run: topics in, rollouts out, and a kill -9 in the middle."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.checkpoint import Checkpoint, EvalReport
from contracts.record import Record
from contracts.rollout import Rollout
from contracts.topics import CHECKPOINTS, EVALUATIONS, ROLLOUTS, Topic
from infra.eventlog.open import open_log_at
from infra.eventlog.port import Entry, EventLog

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def start(tmp_path: Path, unused_port_base: int) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    environment = os.environ | {
        "SLIPSTREAM_HOME": str(tmp_path),
        "SLIPSTREAM_POLICIES": str(ROOT / "policies" / "demo"),
        "SLIPSTREAM_ONLY": "tab",
        "SLIPSTREAM_PORT_BASE": str(unused_port_base),
        "SLIPSTREAM_REGISTRY_LEASE_SECONDS": "1",
        "SLIPSTREAM_REGISTRY_MIRROR_SECONDS": "3600",
    }

    def run() -> subprocess.Popen[bytes]:
        with (tmp_path / "registry.out").open("ab") as out:
            started.append(subprocess.Popen([sys.executable, "-m", "registry"], cwd=ROOT, env=environment, stdout=out, stderr=out))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def unused_port_base() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1]) - 2


def send(log: EventLog, topic: Topic, record: Record) -> None:
    log.append(topic.name, [Entry("tab", record.encode())])


def wait_for(what: Callable[[], Any], seconds: float = 50.0) -> Any:
    due = time.monotonic() + seconds
    while time.monotonic() < due:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come to that in time")


@pytest.mark.timeout(240)
def test_from_topics_to_rollouts_over_a_kill(
    tmp_path: Path,
    start: Callable[[], subprocess.Popen[bytes]],
    unused_port_base: int,
    checkpoint_of: Callable[..., Checkpoint],
    report_of: Callable[..., EvalReport],
) -> None:
    log = open_log_at(f"sqlite:///{tmp_path / 'log.db'}", tmp_path / "payloads")
    log.ensure([CHECKPOINTS, EVALUATIONS, ROLLOUTS])
    heard = log.consumer("listener", [ROLLOUTS.name])
    routed: list[Rollout] = []

    def newest() -> Rollout | None:
        routed.extend(Rollout.decode(message.value) for message in heard.poll(0.05))
        return routed[-1] if routed else None

    first = start()
    for number in (0, 1):
        send(log, CHECKPOINTS, checkpoint_of(number))
    log.append(CHECKPOINTS.name, [Entry("tab", b"{}")])
    wait_for(lambda: (now := newest()) and now.candidate == "tab-v0001")
    first.send_signal(signal.SIGKILL)
    first.wait()

    second = start()
    send(log, CHECKPOINTS, checkpoint_of(1))
    send(log, EVALUATIONS, report_of("tab-v0001", silent=1.0))
    rejected = wait_for(lambda: (now := newest()) and now.candidate is None and now.revision > 1 and now)
    assert rejected.reason == "bench_floor.smoke: silent is 1, the ceiling is 0.95"
    with urllib.request.urlopen(f"http://127.0.0.1:{unused_port_base + 2}/api/overview", timeout=60) as answer:
        assert b'"state":"rejected"' in answer.read()
    assert [rollout.revision for rollout in dict.fromkeys(routed)] == [1, 2, 3]
    second.send_signal(signal.SIGTERM)
    assert second.wait(timeout=60) == 0
    heard.close()
    log.close()
