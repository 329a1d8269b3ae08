"""Before and after, on files that no training and no traffic has seen, asked by developers who are new to the product.

Enters: two versions. Leaves: the figures of each on the very same questions. Both are asked by name, so nothing that happens here
is learned from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from contracts.checkpoint import Metric
from contracts.record import Record
from harness.developers.gateway import Client, Unanswered
from harness.developers.plan import Habits, Plan
from harness.developers.reaction import verdict
from harness.intervals import mean, rate
from harness.tiny.asking import visible
from harness.tiny.corpus import files

ACCEPTED, REJECTED, SILENT = 0.75, -0.25, 0.0
_AT_ONCE = 48
_ATTEMPTS = 20
_NEW_PEOPLE = 1_000_003


class Figures(Record):
    """`accept_rate`: of what was shown. `shown`, `reward`, `accepted_characters`: per request."""

    version: str
    accept_rate: Metric
    shown: Metric
    reward: Metric
    accepted_characters: Metric


async def measure(client: Client, policy: str, version: str, questions: int, seed: int, progress: Callable[[int], None]) -> Figures:
    plan = Plan(files("heldout"), Habits(), seed + _NEW_PEOPLE)
    turns = asyncio.Semaphore(_AT_ONCE)
    done = 0

    async def ask(number: int) -> tuple[bool | None, int]:
        nonlocal done
        request = plan.request(number)
        headers = {"X-Policy-Version": version, "X-Subject": request.developer, "X-Consent": "false"}
        async with turns:
            for attempt in range(_ATTEMPTS):
                try:
                    answer = await client.complete(policy, request.question.context, headers)
                    break
                except Unanswered:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    await asyncio.sleep(0.5)
        done += 1
        progress(done)
        taken = verdict(answer, request)
        return taken, visible(answer.text) if taken else 0

    results = await asyncio.gather(*(ask(number) for number in range(questions)))
    verdicts = [taken for taken, _ in results]
    shown = [taken for taken in verdicts if taken is not None]
    worth = {True: ACCEPTED, False: REJECTED, None: SILENT}
    return Figures(
        version=version,
        accept_rate=rate("accept_rate", sum(shown), len(shown)),
        shown=rate("shown", len(shown), len(verdicts)),
        reward=mean("reward", [worth[taken] for taken in verdicts]),
        accepted_characters=mean("accepted_characters", [float(characters) for _, characters in results]),
    )
