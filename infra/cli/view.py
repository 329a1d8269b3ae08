"""The status of a deployment for people: a table where there is a terminal, a line per change elsewhere.

Enters: `Deployment` records. Leaves: text.
"""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from infra.supervisor.state import Deployment, Life, ProcessState

_COLOURS = {
    Life.WAITING: "dim",
    Life.STARTING: "yellow",
    Life.READY: "green",
    Life.BACKOFF: "red",
    Life.STOPPING: "yellow",
    Life.STOPPED: "dim",
    Life.FAILED: "bold red",
}


def status_table(deployment: Deployment, now: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    # On a narrow terminal only what the process says gets shorter.
    table.add_column("process", no_wrap=True, min_width=max((len(process.name) for process in deployment.processes), default=7))
    table.add_column("state", no_wrap=True, min_width=max(map(len, Life)))
    for name, width in (("pid", 7), ("up since", 9), ("restarts", 8), ("memory", 7)):
        table.add_column(name, no_wrap=True, justify="right", min_width=width)
    table.add_column("says", no_wrap=True, overflow="ellipsis")
    for process in deployment.processes:
        memory = f"{process.memory_mb:.0f} MB" if process.memory_mb is not None else ""
        table.add_row(
            process.name,
            Text(process.life, style=_COLOURS[process.life]),
            str(process.pid or ""),
            _since(process, now),
            str(process.restarts or ""),
            memory,
            Text(process.says, style="dim"),
        )
    return table


def summary(deployment: Deployment, now: float) -> str:
    """One line under the table."""
    shared = "shared pages once" if deployment.memory_measure == "pss" else "shared pages each time"
    return (
        f"{deployment.kind} in {deployment.home}, process {deployment.pid}, for {age(now - deployment.since)}; "
        f"memory {deployment.memory_mb:.0f} MB, at most {deployment.peak_rss_mb:.0f} MB ({shared})"
    )


def address_lines(deployment: Deployment) -> Text:
    width = max((len(name) for name in deployment.addresses), default=0)
    return Text("\n".join(f"{name:<{width}}  {address}" for name, address in deployment.addresses.items()))


def age(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


AWAITED_EVERY_S = 3.0
AWAITED_CHARACTERS = 160


class LiveTable:
    """The whole state, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, deployment: Deployment) -> None:
        now = time.time()
        parts: list[RenderableType] = [status_table(deployment, now), Text(summary(deployment, now), style="dim")]
        if deployment.notice:
            parts.append(Text(deployment.notice, style="bold red"))
        if deployment.ready:
            parts.append(Text("\n").append_text(address_lines(deployment)).append("\nCtrl-C stops everything.", style="dim"))
        self._live.update(Group(*parts), refresh=True)


class Lines:
    """A line per change, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, tuple[Life, int | None]] = {}
        self._was_ready = False
        self._notice: str | None = None

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, deployment: Deployment) -> None:
        for process in deployment.processes:
            seen = (process.life, process.pid)
            if self._shown.get(process.name) != seen:
                self._shown[process.name] = seen
                self._say(f"{process.name} {_words(process)}")
        if deployment.notice and deployment.notice != self._notice:
            self._say(deployment.notice)
        self._notice = deployment.notice
        if deployment.ready and not self._was_ready:
            self._was_ready = True
            self._say(f"everything is ready after {age(deployment.updated - deployment.since)}")
            for name, address in deployment.addresses.items():
                self._say(f"{name} {address}")

    def _say(self, line: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False, highlight=False, soft_wrap=True)


class Awaited:
    """What is not ready yet and one reason, in a line: once it takes a while, and when either is new, but not all the time."""

    def __init__(self, now: float) -> None:
        self._next = now + AWAITED_EVERY_S
        self._names = ""
        self._reasons: set[str] = set()

    def words(self, deployment: Deployment | None, now: float) -> str:
        """Empty where nothing is to be said; `now` in monotonic seconds."""
        if deployment is None or now < self._next:
            return ""
        waiting = [process for process in deployment.processes if process.life is not Life.READY]
        names = ", ".join(process.name for process in waiting)
        reasons = (f"{process.name} says: {process.says[:AWAITED_CHARACTERS]}" for process in waiting if process.says)
        reason = next((one for one in reasons if one not in self._reasons), "")
        if not names or (names == self._names and not reason):
            return ""
        self._names, self._next = names, now + AWAITED_EVERY_S
        self._reasons.add(reason)
        return f"waiting for {names}; {reason}" if reason else f"waiting for {names}"


def _words(process: ProcessState) -> str:
    if process.life in (Life.BACKOFF, Life.FAILED) and process.says:
        return f"{process.life}: {process.says}"
    return f"{process.life} (process {process.pid})" if process.pid is not None else str(process.life)


def _since(process: ProcessState, now: float) -> str:
    return age(now - process.since) if process.since is not None and process.pid is not None else ""
