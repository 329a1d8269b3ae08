"""The crowd at work: many developers ask at once, and their clients send what happened.

Enters: a plan, a ledger, a client. Leaves: requests answered and events delivered. A request that fails is tried again under a new
episode and counted; events wait until the collector takes them, in small batches, however long it is away.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from datetime import UTC, datetime

from harness.developers.gateway import Client, Unanswered
from harness.developers.ledger import Ledger, Waiting
from harness.developers.plan import Plan, Request
from harness.developers.reaction import Answer, react, verdict

_BATCH = 200
_PAUSE_S = 0.1
_RETRY_S = 0.3


class Crowd:
    """`ask` runs until `enough` is set; `deliver` until nothing is left to send and asking is over."""

    def __init__(self, plan: Plan, ledger: Ledger, client: Client, policy: str, run: str) -> None:
        self._plan = plan
        self._ledger = ledger
        self._client = client
        self._policy = policy
        self._episode = f"ep-{run}-{ledger.start()}"
        done = ledger.done()
        self._next = max(done, default=-1) + 1
        self._redo = sorted(set(range(self._next)) - done, reverse=True)
        self._attempts = 0
        self._due: list[tuple[float, int, Waiting]] = []
        for waiting in ledger.waiting():
            self._push(waiting)
        self.failed_requests = 0
        self.pace_s = 0.0
        self._gate = asyncio.Lock()
        self._not_before = 0.0

    async def ask(self, workers: int, enough: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(enough))

    async def deliver(self, over: asyncio.Event) -> None:
        while not (over.is_set() and not self._due):
            batch = self._take(everything=over.is_set())
            if not batch:
                await asyncio.sleep(_PAUSE_S)
                continue
            try:
                fates = await self._client.send([waiting.event for waiting in batch])
            except Unanswered:
                for waiting in batch:
                    self._push(waiting)
                await asyncio.sleep(_RETRY_S)
                continue
            self._ledger.settled([(waiting.event["id"], fate["status"]) for waiting, fate in zip(batch, fates, strict=True)])
            for waiting in batch:
                if waiting.sendings > 1:
                    self._push(Waiting(waiting.event, time.time() + 0.5, waiting.sendings - 1))

    async def _work(self, enough: asyncio.Event) -> None:
        while not enough.is_set():
            await self._take_turn()
            number = self._redo.pop() if self._redo else self._next
            self._next = max(self._next, number + 1)
            await self._one(self._plan.request(number), enough)

    async def _take_turn(self) -> None:
        """At most one request every `pace_s` seconds, over the whole crowd."""
        async with self._gate:
            now = time.monotonic()
            self._not_before = max(self._not_before + self.pace_s, now - 0.1)
            wait = self._not_before - now
        if wait > 0:
            await asyncio.sleep(wait)

    async def _one(self, request: Request, enough: asyncio.Event) -> None:
        answer = await self._answer(request, enough)
        if answer is None:
            self._redo.append(request.number)
            return
        now = time.time()
        due = react(request, answer, self._plan.habits, self._policy, datetime.fromtimestamp(now, UTC)) if request.consent else []
        self._ledger.answered(request.number, request.developer, answer, verdict(answer, request), now, due)
        for one in due:
            self._push(Waiting(one.event, now + one.after_s, 2 if one.twice else 1))

    async def _answer(self, request: Request, enough: asyncio.Event) -> Answer | None:
        while True:
            self._attempts += 1
            headers = {
                "X-Episode-Id": f"{self._episode}-{request.number}-{self._attempts}",
                "X-Subject": request.developer,
                "X-Consent": "true" if request.consent else "false",
            }
            try:
                return await self._client.complete(self._policy, request.question.context, headers)
            except Unanswered:
                self.failed_requests += 1
                if enough.is_set():
                    return None
                await asyncio.sleep(_RETRY_S)

    def _push(self, waiting: Waiting) -> None:
        heapq.heappush(self._due, (waiting.due, id(waiting), waiting))

    def _take(self, everything: bool) -> list[Waiting]:
        """What is due now; at the end of the day everything, ahead of its time."""
        batch: list[Waiting] = []
        now = time.time()
        while self._due and len(batch) < _BATCH and (everything or self._due[0][0] <= now):
            batch.append(heapq.heappop(self._due)[2])
        return batch
