"""A collector and two joiners on Kafka and PostgreSQL, each restarted when it dies, and a crowd of clients that never give up.

Enters: addresses of the outside systems. Leaves: processes that a test may kill whenever it likes, and events that were sent
until somebody said that they were taken.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from contracts.outcome import KINDS

PROCESSES = {"collector": ("ingest", "collect"), "joiner-1": ("ingest", "join"), "joiner-2": ("ingest", "join")}
BATCH = 100
RESPAWN_S = 0.5
SENDERS = 4
PATIENCE_S = 300.0


class Intake:
    """`kill` ends a process with SIGKILL; a watcher starts the next one at once, as a supervisor would."""

    def __init__(self, home: Path, log_url: str, db_url: str, port_base: int) -> None:
        self.home = home
        self.events_url = f"http://127.0.0.1:{port_base + 1}/v1/events"
        self.restarts = 0
        self._environment = os.environ | {
            "SLIPSTREAM_HOME": str(home),
            "SLIPSTREAM_LOG_URL": log_url,
            "SLIPSTREAM_DB_URL": db_url,
            "SLIPSTREAM_PORT_BASE": str(port_base),
            "OMP_NUM_THREADS": "1",
        }
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        for name in PROCESSES:
            self._start(name)
        self._watcher.start()

    def kill(self, name: str) -> None:
        with self._lock:
            self._running[name].send_signal(signal.SIGKILL)

    def stop(self) -> None:
        self._stop.set()
        self._watcher.join(10)
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str) -> None:
        stage, part = PROCESSES[name]
        with (self.home / f"{name}.log").open("ab") as output:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", stage, part], env=self._environment, stdout=output, stderr=output
            )

    def _watch(self) -> None:
        while not self._stop.wait(RESPAWN_S):
            with self._lock:
                for name, process in list(self._running.items()):
                    if process.poll() is not None:
                        self.restarts += 1
                        self._start(name)


@dataclass
class Traffic:
    """One round of events: `episodes` with the ids of their events; what is malformed is to be refused, once each."""

    name: str
    policy: str
    size: int
    random: random.Random
    episodes: dict[str, list[str]] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)

    @property
    def told(self) -> int:
        """Unique events that are to be joined."""
        return sum(len(events) for events in self.episodes.values())

    def turn_id(self, episode_id: str) -> str:
        return f"{episode_id}.1-0"

    def events(self, started_at: float) -> list[dict[str, Any]]:
        """`size` events: unique ones, one in ten sent twice (some with another time), out of order over the whole round."""
        unique: list[dict[str, Any]] = []
        while len(unique) < self.size * 9 // 10:
            episode = f"{self.name}-{len(self.episodes)}"
            told = [self._event(episode, number, kind, started_at) for number, kind in enumerate(self._kinds())]
            self.episodes[episode] = [event["id"] for event in told]
            unique += told
            if self.random.random() < 0.02:
                unique.append(self._bad(episode, started_at))
        again = [dict(event) for event in self.random.sample(unique, self.size - len(unique))]
        for event in again[::2]:
            if event["id"] not in self.bad:
                event["time"] = _rfc3339(started_at + self.random.uniform(-3600, 3600))
        events = unique + again
        self.random.shuffle(events)
        return events

    def _kinds(self) -> list[str]:
        between = ["accepted", "edited", *["persisted"] * self.random.randint(1, 4), *self.random.sample(_PLAIN, 3)]
        return ["shown", *between, "closed"]

    def _event(self, episode: str, number: int, kind: str, started_at: float) -> dict[str, Any]:
        return {
            "specversion": "1.0",
            "id": f"{episode}-e{number}",
            "source": "/chaos",
            "type": f"slipstream.{kind}",
            "time": _rfc3339(started_at + number),
            "policy": self.policy,
            "turnid": self.turn_id(episode),
            "data": _DATA.get(kind, {}),
        }

    def _bad(self, episode: str, started_at: float) -> dict[str, Any]:
        event = self._event(episode, 99, "accepted", started_at) | {"data": {"characters": -1}}
        self.bad.add(event["id"])
        return event


_DATA: dict[str, dict[str, Any]] = {
    "accepted": {"characters": 5},
    "edited": {"surviving": 0.5},
    "persisted": {"after_s": 15.0, "surviving": 0.5},
}
_PLAIN = sorted(
    kind for kind, record in KINDS.items() if kind != "closed" and not any(f.is_required() for f in record.model_fields.values())
)


def _rfc3339(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def batches(events: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(events), BATCH):
        yield list(events[start : start + BATCH])


def send_all(url: str, events: Sequence[dict[str, Any]]) -> int:
    """Every batch until it was answered; several at a time. Answers how many tries failed."""

    headers = {"content-type": "application/cloudevents-batch+json"}
    limits = httpx.Limits(max_connections=SENDERS)

    def send(client: httpx.Client, batch: list[dict[str, Any]]) -> int:
        failures, deadline = 0, time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                answer = client.post(url, json=batch, headers=headers)
                if answer.status_code in (202, 207):
                    return failures
                assert answer.status_code in (429, 503), answer.text
            except httpx.TransportError:
                pass
            failures += 1
            time.sleep(0.5)
        raise AssertionError(f"a batch was not taken within {PATIENCE_S:.0f} s")

    with httpx.Client(timeout=30, limits=limits) as client, ThreadPoolExecutor(SENDERS) as pool:
        return sum(pool.map(partial(send, client), batches(events)))
