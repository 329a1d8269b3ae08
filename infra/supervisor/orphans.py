"""Processes of a home that outlived their supervisor.

Enters: a home. Leaves: the processes, found by what the state file recorded (pid and creation time) and by the mark in their
environment; and their end. Goes wrong: a process that may not be read or ended is left alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from infra.supervisor.environment import MARK
from infra.supervisor.state import read_state

_SAME_S = 2.0
"""Creation times are derived from the boot time, which moves a little when the clock is set."""


def recorded(pid: int, create_time: float | None) -> psutil.Process | None:
    """The process itself, unless it is gone or its pid belongs to another one now."""
    try:
        process = psutil.Process(pid)
        same = create_time is not None and abs(process.create_time() - create_time) < _SAME_S
        return process if same and _runs(process) else None
    except psutil.Error:
        return None


def find_orphans(home: Path) -> dict[psutil.Process, str]:
    """What runs for this home, with the name of each; never the caller nor those who started it."""
    found = {process: name for name, process in _from_state(home)}
    for process in _from_marks(home):
        found.setdefault(process, "helper")
    for own in _line_of_descent():
        found.pop(own, None)
    return found


def end(processes: Sequence[psutil.Process], grace_s: float = 5.0) -> None:
    """SIGTERM, some time, SIGKILL."""
    for process in processes:
        _quietly(process.terminate)
    for process in _outlast(processes, grace_s):
        _quietly(process.kill)
    _outlast(processes, 2.0)


def _outlast(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that still run after so long. One that ended but whose parent does not ask for its exit code runs no more."""
    deadline = time.monotonic() + seconds
    left = [process for process in processes if _runs(process)]
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [process for process in left if _runs(process)]
    return left


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _from_state(home: Path) -> Iterator[tuple[str, psutil.Process]]:
    state = read_state(home)
    for child in state.processes if state else ():
        if child.pid is not None and (process := recorded(child.pid, child.create_time)) is not None:
            yield child.name, process


def _from_marks(home: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(home):
                yield process
        except (psutil.Error, OSError):
            continue


def _line_of_descent() -> list[psutil.Process]:
    own = psutil.Process(os.getpid())
    try:
        return [own, *own.parents()]
    except psutil.Error:
        return [own]


def _quietly(act: Callable[[], None]) -> None:
    with suppress(psutil.Error):
        act()
