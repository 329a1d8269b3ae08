"""Entries become durable before their senders are answered.

Enters: entries of one topic, from many requests at once. Leaves: few appends to the log; while it is away, a spool on this
machine's disk, which `drain` hands over later, in order. What can go wrong: `store` raises OSError when the spool is full or the
disk fails too, and `Poison` for an entry that the log will never take.

A log that neither takes entries nor says that it is away is not waited for longer than `PATIENCE_S`: what is under way is spooled
as well, and so is in the log twice if it arrives after all, under the same id.
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
PATIENCE_S = 2.0
_LOOK_S = 0.25

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


@dataclass(eq=False, slots=True)
class _Flight:
    """An append under way. `behind`: what its thread will append next. `given_up`: the entries of all of them were spooled and
    their senders answered meanwhile."""

    batch: Sequence[_Waiting]
    entries: Sequence[Entry]
    behind: Sequence[_Waiting]
    since: float
    given_up: bool = False


class Appender:
    """What comes within `gather_ms` is one append. Thread-safe, for any number of event loops."""

    def __init__(self, log: EventLog, topic: Topic, spool: Spool, gather_ms: float, patience_s: float = PATIENCE_S) -> None:
        self._log = log
        self._topic = topic
        self._spool = spool
        self._gather_s = gather_ms / 1000
        self._patience_s = patience_s
        self._ensured = False
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._flight: _Flight | None = None
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"{work.__name__.strip('_')}-{topic.name}", daemon=True)
            for work in (self._run, self._watch)
        ]
        for thread in self._threads:
            thread.start()

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
        self._threads[0].join(timeout=30)
        self._closed.set()
        self._threads[1].join(timeout=30)
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

    def _gather(self) -> tuple[list[_Waiting], bool]:
        """Sleeps instead of waking for each, which would cost every request a change of threads."""
        first = self._queue.get()
        if first is None:
            return [], False
        if self._gather_s and _size(first) < MOST:
            time.sleep(self._gather_s)
        return self._at_hand([first])

    def _at_hand(self, batch: list[_Waiting]) -> tuple[list[_Waiting], bool]:
        """With what waits already, up to one append."""
        entries = sum(map(_size, batch))
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

    def _write(self, batch: Sequence[_Waiting], behind: Sequence[_Waiting] = ()) -> bool:
        """False when the other thread saw to it, and to what was behind."""
        entries = _made(batch)
        if entries and not self._spool.must_queue():
            flight = self._flight = _Flight(batch, entries, behind, time.monotonic())
            failure = self._try(entries)
            with self._lock:
                self._flight = None
                if flight.given_up:
                    return False
            if isinstance(failure, Poison):
                self._write_each(batch, failure)
                return True
            if failure is None:
                entries = []
        self._put_aside(batch, entries)
        return True

    def _try(self, entries: Sequence[Entry]) -> Exception | None:
        try:
            self._append(entries)
        except Retry as away:
            logger.warning("%s are spooled on this disk from now on: %s", self._topic.name, away)
            return away
        except Poison as poison:
            return poison
        except Exception as error:
            logger.exception("the event log refused %s, they are spooled on this disk", self._topic.name)
            return error
        return None

    def _put_aside(self, batch: Sequence[_Waiting], entries: Sequence[Entry]) -> None:
        if entries:
            try:
                self._spool.add(entries)
            except OSError as error:
                logger.error("%d %s could be written nowhere: %s", len(entries), self._topic.name, error)
                for waiting in batch:
                    waiting.failure = error
            except ValueError as error:
                if len(batch) > 1:
                    for waiting in batch:
                        self._put_aside([waiting], _made([waiting]))
                    return
                batch[0].failure = error
        _settle(batch)

    def _write_each(self, batch: Sequence[_Waiting], poison: Poison) -> None:
        """Somebody's entry is poison; the others' are not to blame."""
        if len(batch) == 1:
            batch[0].failure = poison
            _settle(batch)
            return
        for number, waiting in enumerate(batch, start=1):
            if not self._write([waiting], batch[number:]):
                return

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_S):
            flight = self._flight
            if flight is not None and time.monotonic() - flight.since > self._patience_s:
                self._stand_in(flight)

    def _stand_in(self, flight: _Flight) -> None:
        """For the other thread, as long as it waits for the log; it goes on only when what was taken for it is in the spool."""
        with self._lock:
            if self._flight is not flight or flight.given_up:
                return
            flight.given_up = True
            logger.warning("the log does not answer; %s are spooled on this disk from now on", self._topic.name)
            self._put_aside(flight.batch, flight.entries)
            if flight.behind:
                self._put_aside(flight.behind, _made(flight.behind))
        going = True
        while going and not self._closed.wait(max(self._gather_s, 0.002)):
            with self._lock:
                if self._flight is not flight:
                    return
                batch, going = self._at_hand([])
                if batch:
                    self._put_aside(batch, _made(batch))
        if not going:
            self._queue.put(None)


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
