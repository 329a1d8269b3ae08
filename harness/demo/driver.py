"""Drive one demo: keep the crowd busy, follow the script, count, measure, report.

Enters: settings, a policy, choices. Leaves: the report. What can go wrong: a service that stays away longer than `_PATIENCE_S`, or
an accounting that does not come to rest, ends the demo with one sentence; running it again goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from contracts.errors import SlipstreamError
from contracts.policy import Policy
from harness.bench.loop import addresses
from harness.demo import report as reporting
from harness.demo.heldout import measure
from harness.demo.inject import inject
from harness.demo.overview import OUT, Overview
from harness.demo.overview import Accounting as Seen
from harness.demo.report import Accounting, Bad, Report
from harness.demo.screen import shown
from harness.demo.script import Act, Script
from harness.demo.view import Traffic
from harness.developers.crowd import Crowd
from harness.developers.gateway import Client, Unanswered, open_session
from harness.developers.ledger import Ledger
from harness.developers.plan import Habits, Plan
from harness.tiny.corpus import files
from infra.settings import Settings

_PATIENCE_S = 180.0
_LOOK_S = 1.0


class Stuck(SlipstreamError):
    """The demo cannot go on by itself."""


@dataclass(frozen=True)
class Choices:
    """How much of everything. `pace` and `pace_while_learning` are requests a second at most.

    The crowd slows down while a cycle runs: what it would ask then is answered by weights that are about to be replaced, and on
    a small machine it takes the processor from the learner.
    """

    seed: int
    script: Script
    workers: int
    pace: float
    pace_while_learning: float
    questions: int
    names_page: bool

    @classmethod
    def of(cls, seed: int, cycles: int | None, quick: bool, names_page: bool) -> Choices:
        wanted = cycles or (2 if quick else 3)
        return cls(
            seed=seed,
            script=Script(wanted, sabotage_after=min(2, wanted)),
            workers=48,
            pace=160.0,
            pace_while_learning=25.0,
            questions=400 if quick else 1500,
            names_page=names_page,
        )


class Driver:
    def __init__(self, settings: Settings, policy: Policy, choices: Choices) -> None:
        self._settings = settings
        self._policy = policy
        self._choices = choices
        self._ledger = Ledger(settings.home / "developers.db")
        self._console = Console()
        self._seen: Overview | None = None
        self._doing = "Warming up"
        self._started = time.monotonic()
        self._before_s = float(self._ledger.fact("seconds") or 0.0)
        self._failed_before = int(self._ledger.fact("failed_requests") or 0)
        self._rate = (time.monotonic(), self._ledger.requests(), 0.0)

    async def run(self) -> Report:
        where = addresses(self._settings)
        page = f"{where.console}/" if self._choices.names_page else None
        plan = Plan(files("traffic"), Habits(), self._choices.seed)
        async with open_session() as session:
            client = Client(where, session)
            await self._until_ready(client, where.gateway)
            run = self._fact("run", f"{int(time.time()):x}")
            crowd = Crowd(plan, self._ledger, client, self._policy.name, run)
            crowd.pace_s = 1.0 / self._choices.pace
            async with shown(self._console, page, lambda: (self._state(crowd), self._seen)):
                first = await self._first_version(client)
                await self._traffic(client, crowd)
                self._doing = "Counting"
                accounting = await self._balanced(client)
                result = await self._measured(client, crowd, first, accounting)
        reporting.write(result, self._settings.home / "report.json")
        reporting.show(result, self._console)
        self._console.print(f"Written to {_short(self._settings.home / 'report.json')}")
        return result

    async def _traffic(self, client: Client, crowd: Crowd) -> None:
        """The crowd asks and tells until the script says that it is enough."""
        enough, over = asyncio.Event(), asyncio.Event()
        if self._ledger.fact("asked_enough"):
            enough.set()
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(crowd.deliver(over))
            asking = group.create_task(crowd.ask(self._choices.workers, enough))
            while not enough.is_set():
                await self._follow_script(client, crowd, enough)
                self._note_seconds()
                self._ledger.note("failed_requests", str(self._failed(crowd)))
                await asyncio.sleep(_LOOK_S)
            self._ledger.note("asked_enough", "yes")
            await asking
            self._doing = "Sending the last events"
            over.set()
            await telling

    async def _follow_script(self, client: Client, crowd: Crowd, enough: asyncio.Event) -> None:
        await self._look(client)
        if self._seen is None:
            return
        self._doing = "Learning from traffic"
        learning = any(cycle.state == "running" for cycle in self._seen.cycles)
        crowd.pace_s = 1.0 / (self._choices.pace_while_learning if learning else self._choices.pace)
        bad = self._ledger.fact("sabotaged")
        act = self._choices.script.next(self._seen, bad)
        if act is Act.SABOTAGE and self._seen.rollout is not None:
            self._doing = "Sabotaging a checkpoint"
            self._ledger.note("sabotaged", await inject(self._settings, self._policy.name, self._seen.rollout.champion))
        elif act is Act.FINISH:
            enough.set()
        elif bad is not None and (version := self._seen.version(bad)) is not None and version.state == "canary":
            self._doing = f"A bad checkpoint, {bad}, is on the canary"

    async def _look(self, client: Client) -> None:
        with contextlib.suppress(Unanswered):
            self._seen = Overview.model_validate(await client.overview(self._policy.name))

    async def _first_version(self, client: Client) -> str:
        """The version that was live before anything was learned."""
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            await self._look(client)
            if self._seen is not None and self._seen.versions:
                return min(self._seen.versions, key=lambda version: version.number).version
            await asyncio.sleep(_LOOK_S)
        raise Stuck("the registry knows no version of the policy; its log says why (.slipstream/demo/logs/registry.log)")

    async def _until_ready(self, client: Client, gateway: str) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not await client.healthy(gateway):
            if time.monotonic() > until:
                raise Stuck("the gateway is not ready after 3 minutes; `slipstream doctor` says what is wrong")
            await asyncio.sleep(0.2)

    async def _balanced(self, client: Client) -> Accounting:
        """Wait until every event that was sent has become exactly one thing."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            await self._look(client)
            found = None if self._seen is None else self._seen.accounting
            if found is not None and found.waiting == 0 and found.settled == self._ledger.sent():
                break
            if time.monotonic() > until:
                raise Stuck(_unsettled(found, self._ledger.sent()))
            await asyncio.sleep(0.5)
        refused = {count.name: count.count for count in found.refused}
        return Accounting(sent=self._ledger.sent(), joined=found.joined, late=found.late, refused=refused)

    async def _measured(self, client: Client, crowd: Crowd, first: str, accounting: Accounting) -> Report:
        seen = self._seen
        assert seen is not None and seen.rollout is not None
        last, questions, seed = seen.rollout.champion, self._choices.questions, self._choices.seed
        self._doing = "Measuring on held-out files"
        before = await measure(client, self._policy.name, first, questions, seed, self._progress(first))
        after = await measure(client, self._policy.name, last, questions, seed, self._progress(last))
        bad = self._ledger.fact("sabotaged")
        learned = [version for version in seen.versions if version.number > 0 and version.version != bad]
        return Report(
            seconds=self._note_seconds(),
            seed=seed,
            cycles=seen.learned,
            promoted=sum(version.state in ("live", "retired") for version in learned),
            rolled_back=sum(version.state in OUT for version in seen.versions),
            requests=self._ledger.requests(),
            failed_requests=self._failed(crowd),
            peak_rss_mb=self._peak(),
            accounting=accounting,
            before=before,
            after=after,
            bad=self._bad(bad, seen),
        )

    def _progress(self, version: str) -> Callable[[int], None]:
        def tell(done: int) -> None:
            self._doing = f"Measuring {version} on held-out files ({done} of {self._choices.questions})"

        return tell

    def _bad(self, name: str | None, seen: Overview) -> Bad | None:
        version = seen.version(name) if name else None
        if version is None:
            return None
        requests, met, everybody = self._ledger.developers_who_met(version.version)
        return Bad(
            version=version.version,
            state=version.state,
            reason=version.reason,
            requests_until_rollback=requests,
            subjects_exposed_share=met / max(1, everybody),
        )

    def _fact(self, name: str, otherwise: str) -> str:
        found = self._ledger.fact(name)
        if found is None:
            self._ledger.note(name, otherwise)
        return found or otherwise

    def _note_seconds(self) -> float:
        seconds = self._before_s + time.monotonic() - self._started
        self._ledger.note("seconds", f"{seconds:.3f}")
        return seconds

    def _failed(self, crowd: Crowd) -> int:
        return self._failed_before + crowd.failed_requests

    def _peak(self) -> float | None:
        try:
            state = json.loads((self._settings.home / "run" / "state.json").read_text(encoding="utf-8"))
            return float(state["peak_rss_mb"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _state(self, crowd: Crowd) -> Traffic:
        then, before, rate = self._rate
        now, requests = time.monotonic(), self._ledger.requests()
        if now - then >= 2.0:
            rate = (requests - before) / (now - then)
            self._rate = (now, requests, rate)
        return Traffic(
            requests, rate, self._failed(crowd), self._ledger.unsent(), self._before_s + now - self._started, self._doing
        )


def _unsettled(found: Seen | None, sent: int) -> str:
    if found is None:
        return "the console does not answer, so nothing can be counted"
    return f"of {sent} events that were sent {found.settled} are accounted for and {found.waiting} wait; what does the joiner say?"


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
