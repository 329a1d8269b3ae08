"""Turns become durable before their answers leave.

Enters: turns. Leaves: records on the topic `turns`, gathered into few writes. What can go wrong: the log is away, then turns
are spooled on this disk and `drain` hands them over later; when the disk fails too, the person gets the answer all the same
and the loss is counted.

A turn's number is `<boot>-<k>`: the boot is a row of its own per process start and k counts within it, so no two turns share
one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from contracts.errors import Retry
from contracts.ids import turn_id
from contracts.topics import TURNS
from contracts.turn import Turn
from infra.eventlog.port import Entry, EventLog
from serving.counts import Counts
from serving.spool import Spool

logger = logging.getLogger(__name__)

_MOST = 500


@dataclass(slots=True)
class _Waiting:
    policy: str
    entry: Entry
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[bool]


class Capture:
    def __init__(self, log: EventLog, spool: Spool, boot: int, counts: Counts, gather_ms: float) -> None:
        self._log = log
        self._spool = spool
        self._boot = boot
        self._counts = counts
        self._gather_s = gather_ms / 1000
        self._numbers: Iterator[int] = itertools.count(1)
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        log.ensure([TURNS])
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    def next_turn_id(self, episode_id: str) -> str:
        return turn_id(episode_id, f"{self._boot}-{next(self._numbers)}")

    async def store(self, turn: Turn) -> bool:
        """Returns when the turn is safe; False when it could be written nowhere."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(turn.policy, Entry(turn.episode_id, turn.encode()), loop, loop.create_future())
        self._queue.put(waiting)
        return await waiting.done

    def drain(self) -> int:
        """Hand spooled turns to the log. Raises `Retry` while it is away."""
        return self._spool.drain(self._append)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(timeout=30)

    def _append(self, entries: Sequence[Entry]) -> None:
        self._log.append(TURNS.name, entries)

    def _run(self) -> None:
        going = True
        while going:
            batch, going = self._gather()
            if batch:
                self._settle(batch, self._write([waiting.entry for waiting in batch]))

    def _gather(self) -> tuple[list[_Waiting], bool]:
        """What finishes within a few milliseconds is one write."""
        batch: list[_Waiting] = []
        first = self._queue.get()
        until = time.monotonic() + self._gather_s
        while first is not None:
            batch.append(first)
            if len(batch) >= _MOST:
                return batch, True
            try:
                first = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return batch, True
        return batch, False

    def _write(self, entries: Sequence[Entry]) -> bool:
        if not self._spool.holds:
            try:
                self._append(entries)
                return True
            except Retry as away:
                logger.warning("turns are spooled on this disk from now on: %s", away)
            except Exception:
                logger.exception("the event log refused turns, they are spooled on this disk")
        try:
            self._spool.add(entries)
        except OSError as error:
            logger.error("%d turns could be written nowhere: %s", len(entries), error.strerror)
            return False
        return True

    def _settle(self, batch: Sequence[_Waiting], stored: bool) -> None:
        for waiting in batch:
            self._counts.add(waiting.policy, "turns_captured" if stored else "turns_lost")
        for loop, group in itertools.groupby(batch, key=lambda waiting: waiting.loop):
            futures = [waiting.done for waiting in group]
            try:
                loop.call_soon_threadsafe(_resolve, futures, stored)
            except RuntimeError:
                logger.warning("%d turns were stored after their requests had gone", len(futures))


def _resolve(futures: Sequence[asyncio.Future[bool]], stored: bool) -> None:
    for future in futures:
        if not future.done():
            future.set_result(stored)
