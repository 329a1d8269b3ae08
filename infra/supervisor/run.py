"""The supervisor: starts programs in the order of their needs, restarts what dies, tells its state, and stops everything.

Enters: a plan. Leaves: how it ended. Goes wrong: a program that never worked and says three times in a row why it cannot start ends
the whole with that sentence; a state file that cannot be written is shown as a notice and stops nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import psutil

from infra.supervisor.child import CANNOT_START, Child
from infra.supervisor.lock import hold
from infra.supervisor.memory import MEASURE, measure, own_mb
from infra.supervisor.orphans import end, find_orphans
from infra.supervisor.preflight import require
from infra.supervisor.probe import is_ready
from infra.supervisor.program import Program
from infra.supervisor.state import ALIVE, Deployment, Life, write_state

TURN_S = 0.05
TELL_S = 1.0


@dataclass(frozen=True)
class Plan:
    """What to run where. `patience`: how often a program that never worked may die before the whole ends; None: for ever."""

    kind: Literal["up", "demo"]
    home: Path
    programs: tuple[Program, ...]
    environment: Mapping[str, str] = field(repr=False)
    ports: Mapping[str, int] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    stores: Mapping[str, str] = field(default_factory=dict)
    policies: Path | None = None
    only: str | None = None
    host: str = "127.0.0.1"
    patience: int | None = None


@dataclass(frozen=True)
class Ending:
    """The exit code, and why when that is not obvious."""

    code: int
    sentence: str | None = None


class View(Protocol):
    def show(self, deployment: Deployment) -> None:
        """Called at each change and once a second."""
        ...


class Silent:
    """Shows nothing."""

    def show(self, deployment: Deployment) -> None:
        pass


def supervise(plan: Plan, view: View) -> Ending:
    """Run until told to stop by SIGINT, SIGTERM or SIGHUP, or until something ends it. One per home."""
    with hold(plan.home):
        end(list(find_orphans(plan.home)))
        require(plan.host, plan.ports)
        return asyncio.run(Supervisor(plan, view).run())


class Supervisor:
    """Single-threaded. Children are started by the main thread, with whose end theirs is tied (see `death`)."""

    def __init__(self, plan: Plan, view: View) -> None:
        self._plan = plan
        self._view = view
        self._children = [Child(program, plan.home, plan.environment) for program in plan.programs]
        self._probes: dict[str, asyncio.Task[None]] = {}
        self._ending: Ending | None = None
        self._hurry = False
        self._notice: str | None = None
        self._since = time.time()
        self._create_time = psutil.Process().create_time()
        self._peak_mb = 0.0
        self._memory_mb = 0.0
        self._told_at = 0.0

    async def run(self) -> Ending:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(signum, self._on_signal, signum)
        try:
            while self._ending is None:
                self._turn(time.monotonic())
                await asyncio.sleep(TURN_S)
        finally:
            for probe in self._probes.values():
                probe.cancel()
            await self._stop_all()
        return self._ending

    def _on_signal(self, signum: int) -> None:
        """The first one stops, the second one stops at once."""
        if self._ending is not None:
            self._hurry = True
        else:
            self._ending = Ending(130 if signum == signal.SIGINT else 0)

    def _turn(self, now: float) -> None:
        changed = False
        for child in self._children:
            changed |= child.step(now, self._needs_met(child))
            if child.life is Life.STARTING:
                self._probe(child, now)
        self._ending = self._ending or self._find_ending()
        if changed or now - self._told_at >= TELL_S:
            self._tell(now)

    def _needs_met(self, child: Child) -> bool:
        return all(other.life is Life.READY for other in self._children if other.program.name in child.program.needs)

    def _probe(self, child: Child, now: float) -> None:
        running = self._probes.get(child.program.name)
        if running is None or running.done():
            self._probes[child.program.name] = asyncio.create_task(self._ask(child, now))

    async def _ask(self, child: Child, now: float) -> None:
        pid = child.pid
        if await is_ready(child.program.ready, child.alive_s(now)) and child.life is Life.STARTING and child.pid == pid:
            child.is_ready()
            self._tell(time.monotonic())

    def _find_ending(self) -> Ending | None:
        for child in self._children:
            name = child.program.name
            if child.life is Life.FAILED:
                return Ending(CANNOT_START, child.says or f"{name} cannot start and does not say why; see {child.log}")
            if child.program.foreground and child.life is Life.STOPPED:
                code = child.last_exit or 0
                return Ending(code if code >= 0 else 128 - code)
            if self._plan.patience is not None and child.deaths >= self._plan.patience and not child.proved:
                return Ending(1, f"{name} died {child.deaths} times soon after its start ({child.says}); see {child.log}")
        return None

    def _tell(self, now: float) -> None:
        if now - self._told_at >= TELL_S:
            self._look(now)
        deployment = self.deployment()
        try:
            write_state(deployment)
            self._notice = None
        except OSError as error:
            self._notice = f"the state file in {self._plan.home} cannot be written: {error.strerror}"
            deployment = self.deployment()
        try:
            self._view.show(deployment)
        except OSError:  # the terminal is gone, or `| head` has read enough
            self._view = Silent()

    def _look(self, now: float) -> None:
        """Once a second: memory, and what each process says."""
        self._told_at = now
        by_pid = {child.pid: child for child in self._children if child.pid is not None}
        sizes = measure([*by_pid])
        for pid, child in by_pid.items():
            child.memory_mb = round(sizes[pid], 1)
            child.listen()
        self._memory_mb = round(own_mb() + sum(sizes.values()), 1)
        self._peak_mb = max(self._peak_mb, self._memory_mb)

    def deployment(self) -> Deployment:
        return Deployment(
            kind=self._plan.kind,
            home=str(self._plan.home),
            pid=os.getpid(),
            create_time=self._create_time,
            since=self._since,
            updated=time.time(),
            ports=dict(self._plan.ports),
            addresses=dict(self._plan.addresses),
            stores=dict(self._plan.stores),
            policies=None if self._plan.policies is None else str(self._plan.policies),
            only=self._plan.only,
            memory_mb=self._memory_mb,
            peak_rss_mb=self._peak_mb,
            memory_measure=MEASURE,
            processes=tuple(child.state() for child in self._children),
            ending=None if self._ending is None else self._ending.sentence or "stopped as asked",
            notice=self._notice,
        )

    async def _stop_all(self) -> None:
        """Each stops once those that need it have; who does not within its grace, or when we are in a hurry, is killed."""
        while any(child.life in ALIVE for child in self._children):
            now = time.monotonic()
            for child in reversed(self._children):
                if child.life not in ALIVE or not self._is_needed(child):
                    child.ask_to_stop(now)
                child.step(now, needs_met=False)
                if self._hurry or (child.stop_asked_at is not None and now - child.stop_asked_at > child.program.grace_s):
                    child.kill()
            self._tell(now)
            await asyncio.sleep(TURN_S)
        for child in self._children:
            child.ask_to_stop(0.0)
        self._tell(time.monotonic())

    def _is_needed(self, child: Child) -> bool:
        return any(other.life in ALIVE and child.program.name in other.program.needs for other in self._children)
