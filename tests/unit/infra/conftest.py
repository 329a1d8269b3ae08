"""A supervisor in a process of its own, with small real programs instead of stages."""

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

import psutil
import pytest

from infra.supervisor.orphans import find_orphans
from infra.supervisor.state import Deployment, Life, ProcessState, read_state

PYTHON = (sys.executable, "-S", "-c")
SLEEPER = (*PYTHON, "import signal; signal.pause()")

_SUPERVISOR = """
import json, os, sys
from pathlib import Path
from infra.supervisor.environment import MARK
from infra.supervisor.program import AnswersHttp, Program, StaysAlive
from infra.supervisor.run import Plan, Silent, supervise

given = json.loads(sys.argv[1])
ready = lambda port: StaysAlive(0.05) if port is None else AnswersHttp(port)
programs = tuple(Program(ready=ready(each.pop("port", None)), **each) for each in given.pop("programs"))
home = Path(given.pop("home"))
plan = Plan(kind="up", home=home, programs=programs, environment={**os.environ, MARK: str(home)}, **given)
try:
    ending = supervise(plan, Silent())
except Exception as error:
    print(error, file=sys.stderr)
    sys.exit(2)
if ending.sentence:
    print(ending.sentence, file=sys.stderr)
sys.exit(ending.code)
"""


def wait_for(condition: Callable[[], Any], within_s: float = 40.0) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"did not happen within {within_s} s")


class Fleet:
    """Starts supervisors on one home and ends what a failed test leaves."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *programs: dict[str, Any], **plan: Any) -> subprocess.Popen[str]:
        given = {"home": str(self.home), "programs": programs, **plan}
        command = [sys.executable, "-c", _SUPERVISOR, json.dumps(given)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def state(self) -> Deployment | None:
        return read_state(self.home)

    def process(self, name: str) -> ProcessState | None:
        """As the newest supervisor tells it."""
        state = self.state()
        if state is None or state.pid != self.started[-1].pid:
            return None
        return next(process for process in state.processes if process.name == name)

    def ready(self, name: str, other_than: int | None = None) -> ProcessState:
        def found() -> ProcessState | None:
            process = self.process(name)
            return process if process and process.life is Life.READY and process.pid != other_than else None

        answer: ProcessState = wait_for(found)
        return answer

    def here(self, name: str, other_than: int | None = None) -> ProcessState:
        """Ready, and its text has come as far as `here()`, which an interpreter on a busy machine may take long to do."""
        file = self.home.parent / f"here-{name}"

        def found() -> ProcessState | None:
            process = self.ready(name, other_than)
            return process if file.exists() and str(process.pid) in file.read_text().split() else None

        answer: ProcessState = wait_for(found)
        return answer

    def ended(self, supervisor: subprocess.Popen[str], within_s: float = 40.0) -> tuple[int, str]:
        _, said = supervisor.communicate(timeout=within_s)
        return supervisor.returncode, said.strip()

    def left(self) -> list[str]:
        return list(find_orphans(self.home).values())

    def clean(self) -> None:
        for supervisor in self.started:
            if supervisor.poll() is None:
                supervisor.kill()
                supervisor.wait()
            if supervisor.stderr:
                supervisor.stderr.close()
        for process in find_orphans(self.home):
            process.kill()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path / "home")
    yield made
    made.clean()


@pytest.fixture
def sleeper() -> dict[str, Any]:
    return {"name": "sleeper", "command": SLEEPER}


@pytest.fixture
def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def eventually() -> Callable[..., Any]:
    return wait_for


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A program from Python text, which may call `here()` once it is set up."""

    def make(name: str, text: str, **more: Any) -> dict[str, Any]:
        here = f"import os\ndef here(): open({str(tmp_path / f'here-{name}')!r}, 'a').write(f'{{os.getpid()}} ')\n"
        return {"name": name, "command": (*PYTHON, here + text), **more}

    return make


@pytest.fixture
def is_gone() -> Callable[[int], bool]:
    def gone(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return gone


@pytest.fixture
def kill9() -> Callable[[int], None]:
    return lambda pid: os.kill(pid, signal.SIGKILL)
