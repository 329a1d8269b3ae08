"""A client's life: its queue, its thread, the end of the program, and a fork in between.

Enters: encoded lines. Leaves: nothing; the courier's thread does the rest. The thread starts with the first event, so that a
program may make its client and fork afterwards. What a parent had in memory stays the parent's: a child starts with an empty
queue, its own thread, connection and counts. At the end of the program what is in memory gets `exit_s` seconds to be sent, and
goes to the spool otherwise.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

from slipstream_events.backlog import Backlog
from slipstream_events.courier import Courier, Flush, OnRefused
from slipstream_events.limits import Limits
from slipstream_events.spool import forget_held
from slipstream_events.tally import Tally
from slipstream_events.wire import Key, Wire

logger = logging.getLogger("slipstream_events")
_living: set[Core] = set()
"""Clients that were not closed; also keeps those alive that a program forgot, so that their events are sent."""


class Core:
    def __init__(self, url: str, key: Key, folder: Path | None, limits: Limits, on_refused: OnRefused | None) -> None:
        self.limits = limits
        self._url = url
        self._key = key
        self._folder = folder
        self._on_refused = on_refused
        self.renew()
        _living.add(self)

    def renew(self) -> None:
        """As new; in a child after a fork, where the locks of the parent's threads may be held by nobody."""
        self.tally = Tally()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        wire = Wire(self._url, self._key)
        self._courier = Courier(wire, Backlog(self._folder, self.limits, self.tally), self.limits, self.tally, self._on_refused)

    def put(self, line: bytes) -> bool:
        """Never waits; False when there is no room, which is counted."""
        if self._closed:
            self.tally.drop("closed")
        elif len(line) > self.limits.event_bytes:
            self.tally.drop("too_large")
        elif not self.tally.admit(len(line), self.limits.queue_events, self.limits.queue_bytes):
            self.tally.drop("queue_full")
        else:
            self._courier.take(line)
            if self._thread is None:
                self._start_or_wait()
            return True
        return False

    def flush(self, timeout_s: float) -> Future[bool]:
        order = Flush(time.monotonic() + timeout_s)
        if self._closed:
            order.done.set_result(self.tally.stats().queued == 0)
            return order.done
        self._start()
        self._courier.order(order)
        return order.done

    def close(self, timeout_s: float | None = None) -> bool:
        """True when everything was sent; what was not is in the spool. Safe to call twice."""
        _living.discard(self)
        if self._closed:
            return True
        self._closed = True
        if self._thread is None and self.tally.queued == 0:
            return True
        within_s = self.limits.exit_s if timeout_s is None else timeout_s
        order = Flush(time.monotonic() + within_s, last=True)
        self._start()
        self._courier.order(order)
        try:
            return order.done.result(within_s + 0.05)
        except Exception:  # the thread is in the middle of a request, or never started
            self._courier.save()
            return False

    def _start_or_wait(self) -> None:
        try:
            self._start()
        except RuntimeError as error:  # no more threads for now; the next event tries again
            logger.warning("events wait for a thread: %s", error)

    def _start(self) -> None:
        """Not waiting for the lock: whoever holds it starts the thread, and may be this thread, interrupted by a signal."""
        if self._thread is not None or not self._starting.acquire(blocking=False):
            return
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._courier.run, name="slipstream-events", daemon=True)
                thread.start()
                self._thread = thread
                _close_at_the_end_of_a_worker()
        finally:
            self._starting.release()


def _close_all() -> None:
    """All clients together hold up the end no longer than one of them may."""
    began = time.monotonic()
    for core in list(_living):
        try:
            core.close(max(0.0, began + core.limits.exit_s - time.monotonic()))
        except Exception:
            logger.exception("events may be lost at the end of the program")


def _close_at_the_end_of_a_worker() -> None:
    """Workers of `multiprocessing` end without `atexit`; they have a list of their own."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _close_all, exitpriority=10)


def _renew_all() -> None:
    forget_held()
    for core in list(_living):
        core.renew()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
