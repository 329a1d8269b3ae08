"""Does the version answer at all, and does it still speak? Held-out prompts, few, the same ones for every version.

Metrics: `answered` (share of requests with a well-formed answer), `silent` (share of those without text), `accepted` (share of
shown text that is what the file says next; for information, the sample is small). It judges whether a version works, not whether
people will like it: that is what the canary is for.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field

from contracts.checkpoint import Metric
from contracts.record import Record
from harness.bench.suite import SUITES
from harness.developers.gateway import Client, Unanswered
from harness.developers.plan import Habits, Plan
from harness.developers.reaction import verdict
from harness.intervals import rate
from harness.tiny.corpus import files

_AT_ONCE = 16
_SEED = 20_260_101


@SUITES.add("smoke")
class Smoke(Record):
    prompts: Annotated[int, Field(ge=1, le=10_000)] = 64

    async def run(self, client: Client, policy: str, version: str) -> tuple[Metric, ...]:
        plan = Plan(files("heldout"), Habits(), _SEED)
        headers = {"X-Policy-Version": version, "X-Consent": "false", "X-Subject": "bench"}
        turns = asyncio.Semaphore(_AT_ONCE)

        async def ask(number: int) -> bool | Unanswered | None:
            request = plan.request(number)
            async with turns:
                try:
                    answer = await client.complete(policy, request.question.context, headers)
                except Unanswered as unanswered:
                    return unanswered
            if answer.version != version:
                return Unanswered(f"{answer.version} answered in place of {version}")
            return verdict(answer, request)

        results = await asyncio.gather(*(ask(number) for number in range(self.prompts)))
        answered = [result for result in results if not isinstance(result, Unanswered)]
        shown = [result for result in answered if result is not None]
        return (
            rate("answered", len(answered), len(results)),
            rate("silent", len(answered) - len(shown), len(answered)),
            rate("accepted", sum(shown), len(shown)),
        )
