"""What was judged becomes durable: outcomes on their topic, refusals on theirs, each over its own spool.

Enters: judged events. Leaves: entries in the log, or on this disk while it is away; an event that the log will never take becomes
a refusal. What can go wrong: OSError when neither has room, and then nothing of the request counts as taken.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from contracts.errors import Poison
from contracts.outcome import Outcome, Refusal
from contracts.topics import OUTCOMES, REFUSALS
from infra.append import Appender
from infra.eventlog.port import Entry, EventLog
from infra.spool import Spool
from ingest.collect.decode import Judged, readable
from ingest.config import IngestConfig


class Intake:
    """Several collectors on one machine may share a folder."""

    def __init__(self, log: EventLog, folder: Path, config: IngestConfig) -> None:
        name, most = f"collector-{os.getpid()}", config.spool_mb * 2**20
        self._outcomes = Appender(log, OUTCOMES, Spool(folder, name, OUTCOMES.name, most), config.gather_ms)
        self._refusals = Appender(log, REFUSALS, Spool(folder, name, REFUSALS.name, most), config.gather_ms)

    async def store(self, judged: Sequence[Judged]) -> list[Judged]:
        """Returns when all of them are safe, with what became of each."""
        try:
            await self._append([one.record for one in judged])
        except Poison as poison:
            if len(judged) > 1:
                return [fate for one in judged for fate in await self.store([one])]
            return await self.store([_unwanted(judged[0], poison)])
        return list(judged)

    async def refuse(self, refusal: Refusal) -> None:
        await self._append([refusal])

    def drain(self) -> int:
        """Hand what is spooled to the log; answers how many entries. Raises `Retry` while it is away."""
        return self._outcomes.drain() + self._refusals.drain()

    def close(self) -> None:
        self._outcomes.close()
        self._refusals.close()

    async def _append(self, records: Sequence[Outcome | Refusal]) -> None:
        """Outcomes first: a refusal that is repeated after a failure in between counts once all the same."""
        outcomes = [Entry(one.episode_id, one.encode()) for one in records if isinstance(one, Outcome)]
        if outcomes:
            await self._outcomes.store(outcomes)
        if len(outcomes) < len(records):
            await self._refusals.store([Entry(one.refusal_id, one.encode()) for one in records if isinstance(one, Refusal)])


def _unwanted(judged: Judged, poison: Poison) -> Judged:
    """The log's own limit was met."""
    outcome = judged.record
    if isinstance(outcome, Refusal):
        raise OSError(f"the log does not take refusals: {poison}")
    refusal = Refusal(
        refusal_id=outcome.event_id,
        event_id=outcome.event_id,
        policy=outcome.policy,
        reason=poison.reason,
        detail=readable(poison.detail),
        received_at=outcome.received_at,
    )
    return replace(judged, record=refusal, code=413, note=None)
