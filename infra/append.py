"""Entries become durable before their senders are answered.

Enters: entries of one topic, from many requests at once. Leaves: few appends to the log; while it is away, a spool on this
machine's disk, which `drain` hands over later, in order. What can go wrong: `store` raises OSError when the spool is full or the
disk fails too, and `Poison` for an entry that the log will never take.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contracts.errors import Poison, Retry
from contracts.topics import Topic
from infra.eventlog.port import Entry, EventLog
from infra.spool import Spool

logger = logging.getLogger(__name__)

MOST = 500


Make = Callable[[], Sequence[Entry]]
"""Entries that are dear to make, and so are made in the appender's thread."""


@dataclass(slots=True)
class _Waiting:
    entries: Sequence[Entry] | Make
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]
    failure: Exception | None = None

    def made(self) -> Sequence[Entry]:
        if callable(self.entries):
            self.entries = self.entries()
        return self.entries


class Appender:
    """What comes within `gather_ms` is one append. Thread-safe, for any number of event loops."""

    def __init__(self, log: EventLog, topic: Topic, spool: Spool, gather_ms: float) -> None:
        self._log = log
        self._topic = topic
        self._spool = spool
        self._gather_s = gather_ms / 1000
        self._ensured = False
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"append-{topic.name}", daemon=True)
        self._thread.start()

    @property
    def spooled_bytes(self) -> int:
        return self._spool.held_bytes

    async def store(self, entries: Sequence[Entry] | Make) -> None:
        """Returns when all of them are safe."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(entries, loop, loop.create_future())
        self._queue.put(waiting)
        await waiting.done

    def drain(self) -> int:
        """Hand what is spooled to the log; answers how many entries. Raises `Retry` while it is away."""
        return self._spool.drain(self._append)

    def close(self) -> None:
        """Everything that was stored is written; what is spooled stays for the next process."""
        self._queue.put(None)
        self._thread.join(timeout=30)
        self._spool.close()

    def _append(self, entries: Sequence[Entry]) -> None:
        if not self._ensured:
            self._log.ensure([self._topic])
            self._ensured = True
        self._log.append(self._topic.name, entries)

    def _run(self) -> None:
        going = True
        while going:
            batch, going = self._gather()
            if batch:
                self._write(batch)
                _settle(batch)

    def _gather(self) -> tuple[list[_Waiting], bool]:
        """Sleeps instead of waking for each, which would cost every request a change of threads."""
        first = self._queue.get()
        if first is None:
            return [], False
        batch, entries = [first], _size(first)
        if self._gather_s and entries < MOST:
            time.sleep(self._gather_s)
        while entries < MOST:
            try:
                following = self._queue.get_nowait()
            except queue.Empty:
                break
            if following is None:
                return batch, False
            batch.append(following)
            entries += _size(following)
        return batch, True

    def _write(self, batch: Sequence[_Waiting]) -> None:
        entries = _made(batch)
        if not entries:
            return
        if not self._spool.holds:
            try:
                self._append(entries)
                return
            except Retry as away:
                logger.warning("%s are spooled on this disk from now on: %s", self._topic.name, away)
            except Poison as poison:
                self._write_each(batch, poison)
                return
            except Exception:
                logger.exception("the event log refused %s, they are spooled on this disk", self._topic.name)
        try:
            self._spool.add(entries)
        except OSError as error:
            logger.error("%d %s could be written nowhere: %s", len(entries), self._topic.name, error.strerror)
            for waiting in batch:
                waiting.failure = error

    def _write_each(self, batch: Sequence[_Waiting], poison: Poison) -> None:
        """Somebody's entry is poison; the others' are not to blame."""
        if len(batch) == 1:
            batch[0].failure = poison
            return
        for waiting in batch:
            self._write([waiting])


def _size(waiting: _Waiting) -> int:
    return 1 if callable(waiting.entries) else len(waiting.entries)


def _made(batch: Sequence[_Waiting]) -> list[Entry]:
    """One that cannot be made is its sender's failure alone."""
    entries: list[Entry] = []
    for waiting in batch:
        try:
            entries += waiting.made()
        except Exception as error:
            logger.exception("an entry could not be made")
            waiting.failure = error
            waiting.entries = ()
    return entries


def _settle(batch: Sequence[_Waiting]) -> None:
    for loop, group in itertools.groupby(batch, key=lambda waiting: waiting.loop):
        settled = list(group)
        try:
            loop.call_soon_threadsafe(_resolve, settled)
        except RuntimeError:
            logger.warning("%d requests were gone before their entries were stored", len(settled))


def _resolve(settled: Sequence[_Waiting]) -> None:
    for waiting in settled:
        if waiting.done.done():
            continue
        if waiting.failure is None:
            waiting.done.set_result(None)
        else:
            waiting.done.set_exception(waiting.failure)
