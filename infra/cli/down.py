"""`slipstream down`: stop the supervisor, and whatever outlived one.

Enters: settings. Leaves: nothing that runs in the home or in the demo's inside it, and a line about what was stopped.
"""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from infra.settings import Settings
from infra.supervisor.lock import holder
from infra.supervisor.orphans import end, find_orphans
from infra.supervisor.state import ALIVE, read_state

STOPS_WITHIN_S = 15.0


def down(settings: Settings) -> int:
    stopped = [*_stop(settings.home), *_stop(settings.home / "demo")]
    if stopped:
        print(f"Stopped {', '.join(stopped)}.")
    else:
        print(f"Nothing ran in {settings.home}.")
    return 0


def _stop(home: Path) -> list[str]:
    stopped: list[str] = []
    pid = holder(home)
    if pid is not None:
        state = read_state(home)
        names = [child.name for child in state.processes if child.life in ALIVE] if state and state.pid == pid else []
        stopped = [*names, f"supervisor ({pid})"]
        _ask(home, pid)
    left = find_orphans(home)
    end(list(left))
    return [*stopped, *(f"{name} ({process.pid})" for process, name in left.items())]


def _ask(home: Path, pid: int) -> None:
    """The supervisor stops the others in order; one that does not answer is ended, and its children are orphans."""
    try:
        supervisor = psutil.Process(pid)
        supervisor.terminate()
        deadline = time.monotonic() + STOPS_WITHIN_S
        while holder(home) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        if holder(home) is not None:
            supervisor.kill()
            supervisor.wait(2.0)
    except (psutil.NoSuchProcess, psutil.TimeoutExpired):
        pass
