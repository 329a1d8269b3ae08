"""One process on its way through its life: started, watched, started again with longer and longer waits, stopped.

Enters: a program and the time. Leaves: its state. Goes wrong: an exit is never an error here, it is counted and answered with
a restart; a program that three times in a row says that it cannot start (exit code 2) is FAILED, unless it did work before:
then what keeps it from starting came later, and the others go on while somebody mends it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from contracts.states import move
from infra.supervisor import logs
from infra.supervisor.death import die_with_parent
from infra.supervisor.program import Program, StaysAlive
from infra.supervisor.state import ALIVE, LIFE_NEXT, Life, ProcessState

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0
FORGIVEN_AFTER_S = 30.0
CANNOT_START = 2
MOST_REFUSALS = 3
_ASKED_TO_END = (-signal.SIGINT, -signal.SIGTERM)


def wait_before_start(deaths: int, chance: float) -> float:
    """Seconds before the next start after `deaths` deaths in a row: 0.2 s doubled up to 5 s, less up to a half by `chance`."""
    ceiling = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(deaths - 1, 16))
    return ceiling * (1.0 - 0.5 * chance)


class Child:
    """Times are monotonic seconds that the caller passes in."""

    def __init__(self, program: Program, home: Path, environment: Mapping[str, str]) -> None:
        self.program = program
        self.life = Life.WAITING
        self.restarts = 0
        self.deaths = 0
        self.proved = False
        self.last_exit: int | None = None
        self.says = ""
        self.memory_mb: float | None = None
        self.stop_asked_at: float | None = None
        self.log = None if program.foreground else logs.log_file(home, program.name)
        self._environment = environment
        self._refusals = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._create_time: float | None = None
        self._since: float | None = None
        self._started_at = 0.0
        self._due = 0.0
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.life in ALIVE else None

    def alive_s(self, now: float) -> float:
        return now - self._started_at

    def step(self, now: float, needs_met: bool) -> bool:
        """See what happened, do what is due; answers whether anything changed."""
        before = self.life
        if self.life in ALIVE:
            code = self._process.poll() if self._process is not None else None
            if code is not None:
                self._ended(code, now)
        elif (self.life is Life.WAITING and needs_met) or (self.life is Life.BACKOFF and now >= self._due):
            self._start(now)
        return self.life is not before

    def is_ready(self) -> None:
        self._move(Life.READY)
        # Who only has to stay alive for a second has not shown anything by that.
        self.proved = self.proved or not isinstance(self.program.ready, StaysAlive)
        self.listen()

    def ask_to_stop(self, now: float) -> None:
        """SIGTERM, or nothing where nothing runs. Later calls change nothing."""
        if self.life in (Life.WAITING, Life.BACKOFF):
            self._move(Life.STOPPED)
        elif self.life in (Life.STARTING, Life.READY):
            self._move(Life.STOPPING)
            self.stop_asked_at = now
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to it and to the group it leads."""
        self._signal(signal.SIGKILL)
        self._sweep_group()

    def listen(self) -> None:
        """Take over what its log said last."""
        if self.log is not None and self.life in (Life.STARTING, Life.READY):
            self.says = logs.latest(self.log, self._log_start)

    def state(self) -> ProcessState:
        return ProcessState(
            name=self.program.name,
            life=self.life,
            pid=self.pid,
            create_time=self._create_time if self.pid is not None else None,
            since=self._since,
            restarts=self.restarts,
            last_exit=self.last_exit,
            memory_mb=self.memory_mb if self.pid is not None else None,
            says=self.says,
            log=str(self.log) if self.log is not None else None,
        )

    def _start(self, now: float) -> None:
        if self.life is Life.BACKOFF:
            self.restarts += 1
        self._move(Life.STARTING)
        self._started_at, self._since = now, time.time()
        try:
            self._process = self._spawn()
            self._create_time = psutil.Process(self._process.pid).create_time()
        except psutil.Error:
            self._create_time = None  # gone already; the next step sees it
        except OSError as error:
            self._process = None
            self.says = f"{self.program.name} cannot be started: {error.strerror or error}"
            self._died(CANNOT_START, now)

    def _spawn(self) -> subprocess.Popen[bytes]:
        if self.log is None:
            return subprocess.Popen(self.program.command, env=self._environment, preexec_fn=die_with_parent())
        with logs.open_log_file(self.log) as output:
            self._log_start = output.tell()
            process = subprocess.Popen(
                self.program.command,
                env=self._environment,
                stdin=subprocess.DEVNULL if self.program.stdin is None else subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        if process.stdin is not None:
            with process.stdin as stream:
                stream.write((self.program.stdin or "").encode())
        return process

    def _ended(self, code: int, now: float) -> None:
        self.last_exit = code
        self._sweep_group()
        finished = self.program.foreground and (code >= 0 or code in _ASKED_TO_END)
        if self.life is Life.STOPPING or finished:
            self._move(Life.STOPPED)
        else:
            if code == CANNOT_START and self.log is not None:
                self.says = logs.last_sentence(self.log, self._log_start)
            else:
                last = logs.latest(self.log, self._log_start) if self.log is not None and code > 0 else ""
                self.says = f"{_how_it_ended(code)}: {last}" if last else _how_it_ended(code)
            self._died(code, now)

    def _died(self, code: int, now: float) -> None:
        if self.alive_s(now) >= FORGIVEN_AFTER_S:
            self.deaths = 0
            self.proved = True
        self.deaths += 1
        self._refusals = self._refusals + 1 if code == CANNOT_START else 0
        if self._refusals >= MOST_REFUSALS and not self.proved:
            self._move(Life.FAILED)
        else:
            self._due = now + wait_before_start(self.deaths, random.random())
            self._move(Life.BACKOFF)

    def _signal(self, signum: signal.Signals) -> None:
        """Safe against reused pids: `Popen` sends nothing once the process has been waited for."""
        if self._process is not None:
            self._process.send_signal(signum)

    def _sweep_group(self) -> None:
        """What it started itself must not work beside its successor."""
        if self._process is not None and not self.program.foreground:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _move(self, to: Life) -> None:
        self.life = move(LIFE_NEXT, self.life, to)


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"
