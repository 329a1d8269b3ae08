"""How much memory the processes take.

Enters: process ids. Leaves: megabytes for each, with the processes it started. On Linux the proportional set size is
used, which counts a page that several processes share once; elsewhere, or where it may not be read, the resident set size.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from infra.supervisor.state import Measure

MEASURE: Measure = "pss" if sys.platform == "linux" and Path("/proc/self/smaps_rollup").exists() else "rss"


def measure(pids: Iterable[int]) -> Mapping[int, float]:
    """Megabytes (10^6 bytes) by root process; one that is gone has 0."""
    return {pid: sum(_bytes(member) for member in family(pid)) / 1e6 for pid in pids}


def own_mb() -> float:
    return _bytes(os.getpid()) / 1e6


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for member in found:
        found.extend(_children(member))
    return found


def _children(pid: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return _children_elsewhere(pid)


def _children_elsewhere(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def _bytes(pid: int) -> int:
    try:
        if MEASURE == "pss":
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
        return int(psutil.Process(pid).memory_info().rss)
    except (OSError, psutil.Error):
        return 0
