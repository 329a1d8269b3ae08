"""`slipstream status`: what the supervisor wrote down, checked against what really runs.

Enters: settings. Leaves: a table or JSON, and 0 when everything is ready, else 1.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from rich.console import Console

from infra.cli.view import address_lines, status_table, summary
from infra.settings import Settings
from infra.spool import put_aside
from infra.supervisor.lock import holder
from infra.supervisor.orphans import find_orphans
from infra.supervisor.state import Deployment, read_state

SILENT_S = 10.0
"""It writes once a second."""


def status(settings: Settings, as_json: bool) -> int:
    home = running_home(settings.home)
    aside = put_aside(settings.model_copy(update={"home": home}).spool)
    runs = holder(home) is not None
    state = read_state(home)
    if as_json:
        told = {"running": runs, "state": None if state is None else state.model_dump(mode="json")}
        print(json.dumps(told | {"put_aside": aside}, allow_nan=False))
    else:
        console = Console()
        _show(console, home, runs, state)
        for topic, count in aside.items():
            words = f"{count} {topic} that the log would never take are put aside in the spool; the log of their process says why."
            console.print(words, markup=False, style="bold red", soft_wrap=True)
    return 0 if runs and state is not None and state.ready and _silence_s(state) is None else 1


def _silence_s(state: Deployment) -> float | None:
    """How long the supervisor has told nothing, if that is too long."""
    silent_s = time.time() - state.updated
    return silent_s if silent_s > SILENT_S else None


def running_home(home: Path) -> Path:
    """The folder itself, or the demo's inside it when only that one runs."""
    demo = home / "demo"
    return demo if holder(home) is None and holder(demo) is not None else home


def _show(console: Console, home: Path, runs: bool, state: Deployment | None) -> None:
    if not runs:
        left = find_orphans(home)
        words = f"Nothing runs in {home}."
        if left:
            names = ", ".join(f"{name} ({process.pid})" for process, name in left.items())
            words = f"The supervisor of {home} is gone, but these still run: {names}. `slipstream down` ends them."
        elif state is not None and state.ending is not None:
            words += f" The last run ended: {state.ending}."
        console.print(words, markup=False, highlight=False, soft_wrap=True)
        return
    if state is None:
        console.print(f"Slipstream is starting in {home}.", markup=False, highlight=False, soft_wrap=True)
        return
    now = time.time()
    console.print(status_table(state, now))
    console.print(summary(state, now), markup=False, highlight=False, soft_wrap=True)
    silent_s = _silence_s(state)
    if silent_s is not None:
        words = f"This was {silent_s:.0f} s ago; the supervisor has not written since. Is the disk full? Ask `slipstream doctor`."
        console.print(words, markup=False, style="bold red", soft_wrap=True)
    if state.notice:
        console.print(state.notice, markup=False, style="bold red", soft_wrap=True)
    console.print(address_lines(state))
