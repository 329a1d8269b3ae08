"""`slipstream up`: preflight, then supervise here, or in the background.

Enters: settings. Leaves: an exit code. Goes wrong: `StartError` with one sentence before anything was started.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from contracts.errors import StartError
from infra.cli.sentences import say
from infra.cli.view import Awaited, Lines, LiveTable, address_lines, status_table, summary
from infra.policies import policy_folder
from infra.settings import Settings
from infra.supervisor import preflight, table
from infra.supervisor.environment import MARK, child_environment
from infra.supervisor.lock import holder, runs_already
from infra.supervisor.logs import last_sentence, log_file, open_log_file
from infra.supervisor.run import Plan, supervise
from infra.supervisor.state import Deployment, ProcessState, read_state

DETACHED_WITHIN_S = 120.0
STEADY_S = 10.0


def up(settings: Settings, detach: bool) -> int:
    pid = holder(settings.home)
    if pid is not None:
        raise runs_already(settings.home, pid)
    preflight.check(settings)
    if detach:
        return _in_background(settings)
    console = Console()
    plan = Plan(
        kind="up",
        home=settings.home,
        programs=table.programs(settings),
        environment=child_environment(settings),
        ports=table.ports(settings),
        addresses=table.addresses(settings),
        stores=table.stores(settings),
        policies=policy_folder(settings).resolve(),
        only=settings.only,
        host=settings.host,
    )
    with LiveTable(console) if console.is_terminal else Lines(console) as view:
        ending = supervise(plan, view)
    if ending.sentence:
        say(ending.sentence)
    return 0 if ending.code == 130 else ending.code


def _in_background(settings: Settings) -> int:
    """The same command in a session of its own; we wait until everything is ready, or it says why not."""
    log = log_file(settings.home, "supervisor")
    with open_log_file(log) as output:
        start = output.tell()
        child = subprocess.Popen(
            (sys.executable, "-m", "infra.cli", "up"),
            env={name: value for name, value in child_environment(settings).items() if name != MARK},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    began = time.monotonic()
    deadline, awaited = began + DETACHED_WITHIN_S, Awaited(began)
    while time.monotonic() < deadline:
        code = child.poll()
        if code is not None:
            sentence = last_sentence(log, start).removeprefix("slipstream: ")
            raise StartError(sentence or f"the supervisor ended with exit code {code}; see {log}")
        if _show_when_ready(settings.home, child.pid):
            return 0
        if words := awaited.words(_state_of(settings.home, child.pid), time.monotonic()):
            say(words)
        time.sleep(0.1)
    say(f"not everything is ready after {DETACHED_WITHIN_S:.0f} s; it goes on in the background, see `slipstream status`")
    return 1


def _show_when_ready(home: Path, pid: int) -> bool:
    state = _state_of(home, pid)
    now = time.time()
    if state is None or not state.ready or not all(_steady(process, now) for process in state.processes):
        return False
    console = Console()
    console.print(status_table(state, now))
    console.print(summary(state, now), markup=False, highlight=False)
    console.print(address_lines(state))
    console.print(f"`slipstream down --home {home}` stops everything.", markup=False, highlight=False)
    return True


def _steady(process: ProcessState, now: float) -> bool:
    """One that has died is believed once it has lived for a while: who has no port is ready by not being dead yet."""
    return process.restarts == 0 or (process.since is not None and now - process.since > STEADY_S)


def _state_of(home: Path, pid: int) -> Deployment | None:
    state = read_state(home)
    return state if state is not None and state.pid == pid else None
