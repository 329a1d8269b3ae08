"""Turns become durable before their answers leave.

Enters: turns. Leaves: records on the topic `turns`, gathered into few writes. What can go wrong: the log is away, then turns
are spooled on this disk and `drain` hands them over later; when the disk fails too, the person gets the answer all the same
and the loss is counted. Before a turn is written, its text is searched for secrets in the appender's thread, not in the event
loop's; a turn in which some were found says which kinds.

A turn's number is `<boot>-<k>`: the boot is a row of its own per process start and k counts within it, so no two turns share
one.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator

from contracts.ids import turn_id
from contracts.topics import TURNS
from contracts.turn import Turn
from infra.append import Appender
from infra.eventlog.port import Entry, EventLog
from infra.people.scan import kinds
from infra.spool import Spool
from serving.counts import Counts

logger = logging.getLogger(__name__)

NOT_SEARCHED = "not-searched"
"""In place of a kind of secret: nobody could look, so there may be one."""


class Capture:
    def __init__(self, log: EventLog, spool: Spool, boot: int, counts: Counts, gather_ms: float) -> None:
        self._boot = boot
        self._counts = counts
        self._numbers: Iterator[int] = itertools.count(1)
        log.ensure([TURNS])
        self._appender = Appender(log, TURNS, spool, gather_ms)

    def next_turn_id(self, episode_id: str, consent: bool = True) -> str:
        return turn_id(episode_id, f"{self._boot}-{next(self._numbers)}", consent)

    async def store(self, turn: Turn, said: Callable[[], str]) -> bool:
        """Returns when the turn is safe; False when it could be written nowhere. `said`: prompt and answer as text."""
        try:
            await self._appender.store(lambda: [Entry(turn.episode_id, self._marked(turn, said).encode())])
        except Exception as error:  # whatever it is, it must not cost the person the answer
            logger.error("a turn of %s could be written nowhere: %s", turn.policy, type(error).__name__)
            self._counts.add(turn.policy, "turns_lost")
            return False
        self._counts.add(turn.policy, "turns_captured")
        return True

    def drain(self) -> int:
        """Hand spooled turns to the log. Raises `Retry` while it is away."""
        return self._appender.drain()

    def close(self) -> None:
        self._appender.close()

    def _marked(self, turn: Turn, said: Callable[[], str]) -> Turn:
        try:
            found = kinds(said())
        except Exception as error:  # an engine that freed the version, or a plugin; its message may quote the text
            logger.error("a turn of %s could not be searched for secrets: %s", turn.policy, type(error).__name__)
            found = (NOT_SEARCHED,)
        if not found:
            return turn
        self._counts.add(turn.policy, "turns_with_secrets")
        return turn.model_copy(update={"secrets": found})
