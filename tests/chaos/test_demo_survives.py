"""The demo under fire: every process is killed with SIGKILL once, then all of it is interrupted, then the same command goes on.

At the end every event that was sent has exactly one fate, no request was counted twice, and nothing is left running.
"""

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
from typing import Any

import psutil
import pytest

from tests.integration.ports import free_port

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3000)]
START_S, RESTART_S, STOP_S = 300.0, 240.0, 180.0
PROCESSES = (
    "serving",
    "joiner",
    "collector",
    "rewarding",
    "learner-worker",
    "registry",
    "driver",
    "redis",
    "bench",
    "learner-beat",
)


def until(what: str, ready: Callable[[], Any], timeout_s: float) -> Any:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = ready()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"after {timeout_s:.0f} s still not: {what}")


class Demo:
    """A demo in a folder of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home / "demo"
        self._log = (home / "output.txt").open("ab")
        self._command = [
            *(sys.executable, "-m", "infra.cli", "demo", "--quick", "--no-page"),
            *("--home", str(home), "--port-base", str(free_port(in_a_row=4))),
        ]
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._running = subprocess.Popen(self._command, stdout=self._log, stderr=subprocess.STDOUT)

    def wait(self, timeout_s: float) -> int:
        assert self._running is not None
        return self._running.wait(timeout_s)

    def interrupt(self) -> None:
        assert self._running is not None
        self._running.send_signal(signal.SIGINT)

    def process(self, name: str) -> dict[str, Any]:
        try:
            state = json.loads((self.home / "run" / "state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return next((process for process in state["processes"] if process["name"] == name), {})

    def requests(self) -> list[int]:
        try:
            with sqlite3.connect(f"file:{self.home / 'developers.db'}?mode=ro", uri=True) as db:
                return [row[0] for row in db.execute("SELECT number FROM requests")]
        except sqlite3.OperationalError:
            return []

    def alive(self) -> list[psutil.Process]:
        marked = f"SLIPSTREAM_HOME={self.home}"
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("SLIPSTREAM_HOME") == marked.partition("=")[2]:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def stop(self) -> None:
        if self._running is not None and self._running.poll() is None:
            self._running.send_signal(signal.SIGTERM)
            try:
                self._running.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._running.kill()
                self._running.wait(10)
        self._log.close()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    try:
        yield demo
    finally:
        demo.stop()


def test_kill_every_process_interrupt_all_and_go_on(demo: Demo) -> None:
    demo.start()
    until("developers ask", lambda: len(demo.requests()) > 50, START_S)
    for name in PROCESSES:
        before = until(
            f"{name} is ready",
            lambda name=name: demo.process(name) if demo.process(name).get("life") == "ready" else None,
            RESTART_S,
        )
        asked = len(demo.requests())
        os.kill(before["pid"], signal.SIGKILL)
        until(
            f"{name} was restarted",
            lambda name=name, before=before: (
                demo.process(name).get("life") == "ready" and demo.process(name)["restarts"] > before["restarts"]
            ),
            RESTART_S,
        )
        until(f"developers are answered after {name} died", lambda asked=asked: len(demo.requests()) > asked, RESTART_S)

    demo.interrupt()
    assert demo.wait(STOP_S) == 130
    assert demo.alive() == [], "something was left running"
    asked = len(demo.requests())
    assert not (demo.home / "report.json").exists()

    demo.start()
    assert demo.wait(1500) == 0
    report = json.loads((demo.home / "report.json").read_text(encoding="utf-8"))
    accounting = report["accounting"]
    assert accounting["sent"] == accounting["joined"] + accounting["late"] + sum(accounting["refused"].values()), accounting
    assert "still_waiting" not in accounting["refused"]
    numbers = demo.requests()
    assert len(numbers) == len(set(numbers)) == report["requests"] > asked
    assert report["cycles"] >= 2 and report["bad"]["state"] == "rolled_back"
    assert demo.alive() == [], "something was left running"
    with sqlite3.connect(f"file:{demo.home / 'slipstream.db'}?mode=ro", uri=True) as db:
        doubled = db.execute(
            "SELECT count(*) FROM rewarding_samples WHERE state = 'consumed' AND cycle_id NOT IN "
            "(SELECT cycle_id FROM learner_cycles WHERE state = 'sealed')"
        ).fetchone()[0]
    assert doubled == 0, "a sample counts as trained on by a cycle that sealed nothing"
