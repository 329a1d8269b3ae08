"""One request from its route to its answer, captured on the way out.

Enters: a checked request. Leaves: an `Answered`; with consent, a `Turn` that is durable before this returns. What can go
wrong: `Refused` in OpenAI's shape. Nobody's text is logged, and without consent nothing but a count is kept: the turn id says
so (`contracts.ids`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime

from contracts.errors import Retry
from contracts.ids import new_episode_id
from contracts.policy import Policy
from contracts.turn import Sampling, Turn, VersionSpan
from infra.clock import Clock
from serving.capture import Capture
from serving.consent import People, Person
from serving.counts import Counts
from serving.engines.port import Answer, BadPrompt, BrokenModel, Busy, Engine, Message, NotLoaded, Request
from serving.openai import Caller, Refused, invalid, unavailable
from serving.split import Route, Router
from serving.swap import Swap, SwapFailed, UnknownVersion

Prompt = str | tuple[int, ...] | tuple[Message, ...]

_ROUTES = 3
"""A version may be freed between being chosen and being asked; then the request goes where the routing says now."""


@dataclass(frozen=True)
class Served:
    """A policy with everything that answers for it."""

    policy: Policy
    engine: Engine
    swap: Swap
    router: Router


@dataclass(frozen=True, slots=True)
class Call:
    served: Served
    caller: Caller
    prompt: Prompt
    sampling: Sampling
    stop: tuple[str, ...] = ()


@dataclass(slots=True)
class Running:
    """A request that an engine works on."""

    call: Call
    turn_id: str
    episode_id: str
    person: Person
    route: Route
    prompt_ids: tuple[int, ...]
    future: Future[Answer]
    abort: threading.Event
    started_at: datetime
    started_s: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, slots=True)
class Answered:
    running: Running
    answer: Answer
    captured: bool


class Desk:
    """Answers for every policy of this process. Used from the event loop only."""

    def __init__(
        self,
        served: Mapping[str, Served],
        capture: Capture,
        counts: Counts,
        people: People,
        clock: Clock,
        load_s: float,
        answer_s: float,
    ) -> None:
        self.served = served
        self._capture = capture
        self._counts = counts
        self._people = people
        self._clock = clock
        self._load_s = load_s
        self._answer_s = answer_s

    def find(self, model: str) -> Served:
        served = self.served.get(model)
        if served is None:
            known = ", ".join(sorted(self.served))
            raise invalid(f"no policy is called {model!r}; there are: {known}", "model", "model_not_found", 404)
        return served

    async def begin(self, call: Call, on_token: Callable[[int], None] | None = None) -> Running:
        """Choose a version and hand the request to its engine."""
        caller, served = call.caller, call.served
        started_at, started_s = self._clock(), time.perf_counter()
        episode_id = caller.episode_id or new_episode_id()
        person = self._people.meet(caller.subject, episode_id, caller.consent)
        abort = threading.Event()
        for _ in range(_ROUTES):
            route = await self._route(call, person.subject, episode_id)
            try:
                prompt_ids = _encode(served.engine, route.version, call.prompt)
                future = served.engine.generate(Request(route.version, prompt_ids, call.sampling, call.stop, on_token, abort))
            except NotLoaded:
                continue
            except BadPrompt as error:
                raise invalid(str(error), "messages" if _is_chat(call.prompt) else "prompt") from error
            except Busy as error:
                raise Refused(429, str(error), "rate_limit_error", None, "busy") from error
            served.swap.use(route.version)
            turn = self._capture.next_turn_id(episode_id, person.consents)
            return Running(call, turn, episode_id, person, route, prompt_ids, future, abort, started_at, started_s)
        raise unavailable("the version was freed while it was asked; try again", "version_gone")

    async def finish(self, running: Running) -> Answered:
        """Wait for the answer and make its turn durable."""
        try:
            answer = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(running.future)), self._answer_s)
        except TimeoutError:
            running.abort.set()
            answer = await self._settled(running)
        except BrokenModel:
            answer = _broken(running)
        return Answered(running, answer, await self._keep(running, answer))

    async def _settled(self, running: Running) -> Answer:
        try:
            return await asyncio.wrap_future(running.future)
        except BrokenModel:
            return _broken(running)

    async def _route(self, call: Call, subject: str, episode_id: str) -> Route:
        served, version = call.served, call.caller.version
        if version is None:
            route = served.router.route(subject, episode_id, served.swap.ready)
            if route is None:
                raise unavailable(f"policy {call.served.policy.name} has no version ready yet", "not_ready")
            return route
        try:
            loading = asyncio.wrap_future(served.swap.want(version))
            await asyncio.wait_for(asyncio.shield(loading), self._load_s)
        except UnknownVersion as error:
            ready = ", ".join(sorted(served.swap.ready)) or "none"
            raise invalid(f"{error}; ready are: {ready}", "x-policy-version", "version_not_found", 404) from error
        except (SwapFailed, Retry, TimeoutError) as error:
            why = str(error) or f"it was not ready within {self._load_s:.0f} s"
            raise unavailable(f"version {version} cannot be served now: {why}", "version_unavailable") from error
        return Route(version, "pinned")

    async def _keep(self, running: Running, answer: Answer) -> bool:
        policy = running.call.served.policy.name
        if answer.finish == "error":
            self._counts.add(policy, "answers_failed")
        if running.route.arm == "pinned":
            self._counts.add(policy, "turns_pinned")
            return False
        if not running.person.consents:
            self._counts.add(policy, "turns_without_consent")
            return False
        return await self._capture.store(_turn(running, answer), lambda: _said(running, answer))


def _encode(engine: Engine, version: str, prompt: Prompt) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return tuple(engine.encode(version, prompt))
    lines = tuple(line for line in prompt if isinstance(line, Message))
    if lines:
        return tuple(engine.encode_chat(version, lines))
    return tuple(token for token in prompt if isinstance(token, int))


def _said(running: Running, answer: Answer) -> str:
    """Prompt and answer as text, in which the capture looks for secrets."""
    prompt = running.call.prompt
    if isinstance(prompt, str):
        return f"{prompt}{answer.text}"
    lines = [line.content for line in prompt if isinstance(line, Message)]
    if not lines:
        lines = [running.call.served.engine.decode(running.route.version, running.prompt_ids)]
    return "\n".join([*lines, answer.text])


def _is_chat(prompt: Prompt) -> bool:
    return isinstance(prompt, tuple) and any(isinstance(line, Message) for line in prompt)


def _broken(running: Running) -> Answer:
    return Answer(running.route.version, (), None, "", "error")


def _turn(running: Running, answer: Answer) -> Turn:
    call, route, count = running.call, running.route, len(answer.completion_ids)
    return Turn(
        turn_id=running.turn_id,
        episode_id=running.episode_id,
        parent_turn_id=call.caller.parent_turn_id,
        policy=call.served.policy.name,
        subject=running.person.subject,
        consent=True,
        role=call.caller.role,
        group_key=call.caller.group_key,
        prompt_ids=running.prompt_ids,
        completion_ids=answer.completion_ids,
        logps=answer.logps,
        spans=(VersionSpan(version=answer.version, start=0, end=count),) if count else (),
        text=answer.text,
        sampling=call.sampling,
        finish=answer.finish,
        arm=route.arm,
        experiment=route.experiment,
        step=route.step,
        propensity=route.propensity,
        started_at=running.started_at,
        latency_ms=(time.perf_counter() - running.started_s) * 1000,
    )
