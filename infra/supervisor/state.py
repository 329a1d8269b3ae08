"""What the supervisor tells the world, once a second, in `run/state.json`; everything else about it is read from there.

Enters and leaves: `Deployment` records. Goes wrong: a file that is half there or from another release reads as None.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from contracts.errors import Poison
from contracts.record import Record
from contracts.states import Table


class Life(StrEnum):
    """Where a process stands. BACKOFF: it died and will start again soon. FAILED: it said too often that it cannot start."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


LIFE_NEXT: Table[Life] = {
    Life.WAITING: frozenset({Life.STARTING, Life.STOPPED, Life.FAILED}),
    Life.STARTING: frozenset({Life.READY, Life.BACKOFF, Life.STOPPING, Life.STOPPED, Life.FAILED}),
    Life.READY: frozenset({Life.BACKOFF, Life.STOPPING, Life.STOPPED, Life.FAILED}),
    Life.BACKOFF: frozenset({Life.STARTING, Life.STOPPED, Life.FAILED}),
    Life.STOPPING: frozenset({Life.STOPPED}),
    Life.STOPPED: frozenset(),
    Life.FAILED: frozenset(),
}

ALIVE = frozenset({Life.STARTING, Life.READY, Life.STOPPING})

Measure = Literal["pss", "rss"]


class ProcessState(Record):
    """One process. `create_time` makes the pid unmistakable; `memory_mb` includes the processes it started itself."""

    name: str
    life: Life
    pid: int | None = None
    create_time: float | None = None
    since: Annotated[float | None, Field(description="Unix seconds of the last start")] = None
    restarts: int = 0
    last_exit: Annotated[int | None, Field(description="as the system told it; negative: the signal that ended it")] = None
    memory_mb: float | None = None
    says: str = ""
    log: str | None = None


class Deployment(Record):
    """All of it. `peak_rss_mb` is the largest sum over all processes and the supervisor, sampled once a second.

    `memory_measure` says how: "pss" counts a page that several processes share once, "rss" counts it for each of them.
    """

    kind: Literal["up", "demo"]
    home: str
    pid: int
    create_time: float
    since: float
    updated: float
    ports: Mapping[str, int]
    addresses: Mapping[str, str]
    policies: Annotated[str | None, Field(description="the folder that it runs with")] = None
    only: Annotated[str | None, Field(description="the policies of that folder that it runs, comma separated; None: all")] = None
    stores: Annotated[
        Mapping[str, str],
        Field(description="the addresses of its log and database, without credentials, by the variable that sets them"),
    ] = Field(default_factory=dict)
    memory_mb: float = 0.0
    peak_rss_mb: float = 0.0
    memory_measure: Measure = "rss"
    processes: tuple[ProcessState, ...] = ()
    ending: Annotated[str | None, Field(description="why it ended, once it has")] = None
    notice: Annotated[str | None, Field(description="something a person should know now")] = None

    @property
    def ready(self) -> bool:
        return all(process.life is Life.READY for process in self.processes)


def state_file(home: Path) -> Path:
    return home / "run" / "state.json"


def write_state(deployment: Deployment) -> None:
    """Whole or not at all. Raises OSError; a full disk must not stop what runs, so the caller decides."""
    file = state_file(Path(deployment.home))
    draft = file.with_name(f".state-{os.getpid()}")
    try:
        draft.write_bytes(deployment.encode())
        os.replace(draft, file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def read_state(home: Path) -> Deployment | None:
    try:
        return Deployment.decode(state_file(home).read_bytes())
    except (OSError, Poison):
        return None
