"""`slipstream doctor`: every preflight check, variables that nobody reads, the health of what runs, each store by itself, and how
far behind each consumer is.

Enters: settings. Leaves: a table with what to do about each problem, and 1 when there is any, else 0.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contracts.errors import SlipstreamError, StartError, UnknownName
from contracts.topics import TURNS
from infra.cli.chosen import as_it_runs
from infra.cli.variables import unknown
from infra.settings import Settings
from infra.supervisor import preflight, table
from infra.supervisor.lock import holder
from infra.supervisor.orphans import find_orphans
from infra.supervisor.ports import busy
from infra.supervisor.probe import is_ready
from infra.supervisor.state import Deployment, Life, read_state

FAR_BEHIND = 50_000


@dataclass(frozen=True)
class Finding:
    """`mend` is empty where nothing is wrong."""

    what: str
    says: str
    mend: str = ""
    ok: bool = True


def doctor(settings: Settings) -> int:
    settings = as_it_runs(settings)
    findings = [*_preflight(settings), *_variables(), *_processes(settings)]
    stores = list(_stores(settings))
    findings += stores
    if all(store.ok for store in stores) and _is_there(settings.event_log) and _is_there(settings.database):
        findings += _lags(settings)
    _show(Console(), findings)
    return 0 if all(finding.ok for finding in findings) else 1


def _preflight(settings: Settings) -> Iterator[Finding]:
    for what, check in preflight.CHECKS.items():
        try:
            yield Finding(what, check(settings))
        except preflight.Problem as problem:
            yield Finding(what, problem.wrong, problem.mend, ok=False)
        except SlipstreamError as error:
            yield Finding(what, str(error), ok=False)


def _processes(settings: Settings) -> Iterator[Finding]:
    state = read_state(settings.home)
    if holder(settings.home) is None:
        yield from _left_behind(settings)
    elif state is not None:
        yield Finding("supervisor", f"process {state.pid}, memory at most {state.peak_rss_mb:.0f} MB")
        yield from asyncio.run(_health(settings, state))


def _left_behind(settings: Settings) -> Iterator[Finding]:
    left = find_orphans(settings.home)
    names = ", ".join(f"{name} ({process.pid})" for process, name in left.items())
    if left:
        yield Finding("supervisor", f"gone, but these still run: {names}", "run `slipstream down`", ok=False)
    else:
        yield Finding("supervisor", "does not run")
    for what, port in table.ports(settings).items():
        taken = None if left else busy(settings.host, port)
        mend = "stop that program or use --port-base" if taken else ""
        yield Finding(f"port {port}", f"{what}: {taken or 'free'}", mend, ok=taken is None)


async def _health(settings: Settings, state: Deployment) -> list[Finding]:
    ready = {program.name: program.ready for program in table.programs(settings)}
    findings = []
    for process in state.processes:
        mend = f"read {process.log}"
        if process.life is not Life.READY:
            findings.append(Finding(process.name, f"{process.life}: {process.says}", mend, ok=False))
        elif process.name in ready and not await is_ready(ready[process.name], alive_s=60.0):
            findings.append(Finding(process.name, "runs but does not answer", mend, ok=False))
        else:
            restarts = f", restarted {process.restarts} times" if process.restarts else ""
            findings.append(Finding(process.name, f"ready{restarts}"))
    return findings


def _variables() -> Iterator[Finding]:
    strange = unknown(os.environ)
    for name, alike in strange.items():
        mend = f"did you mean {alike}?" if alike else "unset it, or correct its name"
        yield Finding("variable", f"no setting is called {name}", mend, ok=False)
    if not strange:
        yield Finding("variables", "each SLIPSTREAM_* that is set is known")


def _stores(settings: Settings) -> Iterator[Finding]:
    """Each by itself: one that is away says nothing about the other. Looking must not make one."""
    shown = table.stores(settings)
    for what, variable, url, ask in (
        ("event log", "SLIPSTREAM_LOG_URL", settings.event_log, _ask_log),
        ("database", "SLIPSTREAM_DB_URL", settings.database, _ask_database),
    ):
        try:
            if _is_there(url):
                ask(settings)
                yield Finding(what, f"{shown[variable]} answers")
            else:
                yield Finding(what, f"{shown[variable]} is not made yet")
        except SlipstreamError as error:
            yield Finding(what, str(error), f"see whether it runs and {variable} is right", ok=False)


def _ask_log(settings: Settings) -> None:
    from infra.eventlog.open import open_log

    with closing(open_log(settings)) as log, suppress(UnknownName):
        log.ends(TURNS.name)


def _ask_database(settings: Settings) -> None:
    from infra.db.engine import open_db

    try:
        open_db(settings.database).dispose()
    except ValueError as error:
        raise StartError("SLIPSTREAM_DB_URL is not a database URL; for example postgresql://user@host/database") from error


def _lags(settings: Settings) -> Iterator[Finding]:
    """Consumer groups are known from the offsets that they keep in the database."""
    try:
        for group, topic, behind in _read_lags(settings):
            far = behind > FAR_BEHIND
            yield Finding(f"{group} < {topic}", f"{behind} behind", "see whether that process runs" if far else "", ok=not far)
    except SlipstreamError as error:
        yield Finding("consumers", str(error), "ask again; it was there a moment ago", ok=False)


def _read_lags(settings: Settings) -> Iterator[tuple[str, str, int]]:
    from infra.db.engine import open_db, reading
    from infra.db.query import select
    from infra.db.tables.stream import OffsetRow
    from infra.eventlog.open import open_log

    with closing(open_log(settings)) as log:
        with reading(open_db(settings.database)) as session:
            pairs = session.exec(select(OffsetRow.consumer_group, OffsetRow.topic).distinct()).all()
        for group, topic in sorted(pairs):
            yield group, topic, log.behind(group, topic)


def _is_there(url: str) -> bool:
    return not url.startswith("sqlite:///") or Path(url.removeprefix("sqlite:///")).exists()


def _show(console: Console, findings: list[Finding]) -> None:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "what", "how it is", "what to do"):
        shown.add_column(name, overflow="fold")
    for finding in findings:
        mark = Text("ok", style="green") if finding.ok else Text("problem", style="bold red")
        shown.add_row(mark, Text(finding.what), Text(finding.says), Text(finding.mend))
    console.print(shown)
    problems = sum(not finding.ok for finding in findings)
    console.print(f"{problems} problem{'s' if problems != 1 else ''}." if problems else "No problem found.", highlight=False)
