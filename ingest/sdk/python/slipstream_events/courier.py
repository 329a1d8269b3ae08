"""The thread that gathers what was told into batches, sends them, and keeps what could not be sent.

Enters: lines out of the inbox, and `Flush` orders. Leaves: requests, counts, files in the spool. What is told while the collector
is there goes out at once; while it is away everything goes to the backlog and one batch at a time asks whether it is back, less and
less often and never before the collector said. Nothing raises into the program.
"""

from __future__ import annotations

import json
import logging
import math
import queue
import random
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from slipstream_events.answer import LONGEST_WAIT_S, Fate, Then, Verdict
from slipstream_events.backlog import Backlog
from slipstream_events.event import Refused
from slipstream_events.limits import Limits
from slipstream_events.tally import Tally
from slipstream_events.wire import Wire

logger = logging.getLogger("slipstream_events")

OnRefused = Callable[[Refused], object]
TRIES = 3
"""Requests that are denied, or that the collector fails on, before their events are dropped."""
_FIRST_WAIT_S = 0.25
_LOOK_S = 30.0
"""How often an idle client looks for what other processes left in the spool."""


@dataclass(slots=True)
class Flush:
    """Everything told before is to be sent by `deadline` (monotonic); `last`: and then the thread ends."""

    deadline: float
    last: bool = False
    ahead: int = 0
    """Lines that were in the inbox before it."""
    done: Future[bool] = field(default_factory=Future)


class Courier:
    def __init__(self, wire: Wire, backlog: Backlog, limits: Limits, tally: Tally, on_refused: OnRefused | None) -> None:
        self._inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._new_orders: queue.SimpleQueue[Flush] = queue.SimpleQueue()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._asleep = False
        self.in_hand: list[bytes] = []
        """Neither sent nor in the backlog; whoever ends the program without waiting for this thread saves them."""
        self._wire = wire
        self._backlog = backlog
        self._limits = limits
        self._tally = tally
        self._on_refused = on_refused
        self._orders: list[Flush] = []
        self._tries: Counter[bytes] = Counter()
        self._failures = 0
        self._not_before = 0.0
        self._look_at = 0.0

    def take(self, line: bytes) -> None:
        """From any thread, signal handlers included: nothing here waits for a lock. Wakes this thread only when there is cause."""
        self._inbox.put(line)
        if self._asleep or self._inbox.qsize() % self._limits.batch_events == 0:
            self._asleep = False
            self._bell.put(None)

    def order(self, flush: Flush) -> None:
        self._new_orders.put(flush)
        self._bell.put(None)

    def run(self) -> None:
        while not any(order.last and order.ahead <= 0 for order in self._orders):
            try:
                self._gather()
                self._forward()
            except Exception:
                logger.exception("sending events failed; going on")
                time.sleep(0.1)
        self._end()

    def _gather(self) -> None:
        """Until a batch is full, its first event has waited long enough, an order came, or the backlog is due."""
        _drain(self._bell)
        due = max(self._look_at, self._not_before)
        if self._inbox.empty() and not self._orders:
            self._asleep = True
            if self._inbox.empty() and self._new_orders.empty():  # after the flag: what comes now rings
                self._rest(due)
            self._asleep = False
        due = min(due, time.monotonic() + self._limits.linger_s)
        while not self._orders and self._new_orders.empty() and self._inbox.qsize() < self._limits.batch_events:
            if not self._rest(due):
                break
        for order in _drain(self._new_orders):
            order.ahead = self._inbox.qsize()
            self._orders.append(order)
        self.in_hand += _drain(self._inbox, self._limits.batch_events, self._limits.queue_bytes // 4)
        for order in self._orders:
            order.ahead -= len(self.in_hand)

    def _rest(self, until: float) -> bool:
        """Until the bell rings; False when it did not."""
        try:
            self._bell.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return False
        return True

    def _forward(self) -> None:
        if self.in_hand:
            lines = self.in_hand
            undone = self._send(lines)
            with self._backlog.lock:
                if self.in_hand is lines:  # else the end of the program has saved them meanwhile
                    self.in_hand = []
                    self._tally.leave(len(lines) - len(undone), sum(map(len, lines)) - sum(map(len, undone)))
                    self._backlog.add(undone)
            if undone:
                self._look_at = 0.0
        self._recover()
        self._answer_orders()

    def _recover(self) -> None:
        """Send what waits, the oldest first; one file at least, and more while nothing new is told."""
        ending = any(order.last for order in self._orders)
        while self._may_send() and (self._orders or time.monotonic() >= self._look_at):
            claim = self._backlog.claim(on_disk=not ending)
            if claim is None:
                self._look_at = time.monotonic() + _LOOK_S
                return
            self._look_at = 0.0
            claim.settle(self._send(claim.lines))
            if not self._orders and not self._inbox.empty():
                return

    def _answer_orders(self) -> None:
        now = time.monotonic()
        for order in [order for order in self._orders if not order.last]:
            sent = order.ahead <= 0 and self._look_at > now
            if sent or order.deadline <= now or order.done.cancelled():
                self._orders.remove(order)
                if order.done.set_running_or_notify_cancel():
                    order.done.set_result(sent)

    def _end(self) -> None:
        sent = False
        try:
            self.save()
            stats = self._tally.stats()
            sent = stats.queued == 0 and stats.spooled <= stats.recovered
            self._wire.close()
        finally:
            for order in self._orders:
                if order.done.set_running_or_notify_cancel():
                    order.done.set_result(sent)

    def save(self) -> None:
        """Put on disk what is still in memory; for the end of the program, from whichever thread gets there."""
        with self._backlog.lock:
            lines, self.in_hand = self.in_hand + _drain(self._inbox), []
            for start in range(0, len(lines), self._limits.batch_events):
                self._backlog.add(lines[start : start + self._limits.batch_events])
            self._backlog.abandon()

    def _within_s(self) -> float:
        """How long a request may take: less when somebody waits for the end of the program."""
        ends = [order.deadline for order in self._orders if order.last]
        return min([self._limits.request_s, *(end - time.monotonic() for end in ends)])

    def _may_send(self) -> bool:
        return time.monotonic() >= self._not_before and self._within_s() > 0.02

    def _send(self, lines: list[bytes]) -> list[bytes]:
        """Answers the lines that are still to be sent."""
        undone: list[bytes] = []
        parts = deque([lines])
        while parts:
            part = parts.popleft()
            if not self._may_send():
                undone += part
                continue
            verdict = self._wire.send(part, self._within_s())
            with self._tally.lock:
                self._tally.requests += 1
                self._tally.retries += verdict.then is not Then.SETTLED
                self._tally.last_fault = verdict.fault if verdict.then is not Then.SETTLED else None
            if verdict.then is Then.SETTLED:
                self._failures = 0
                self._tries.pop(part[0], None)
                self._settle(part, verdict.fates)
            elif verdict.then is Then.HOPELESS:
                self._tally.drop(verdict.fault.lower().replace(" ", "_"), len(part))
            elif verdict.then is Then.SPLIT or (verdict.then is Then.BROKEN and self._tried(part) > TRIES):
                if len(part) == 1:
                    self._tries.pop(part[0], None)
                    self._tally.drop("too_large" if verdict.then is Then.SPLIT else "server_error")
                else:
                    parts.extendleft((part[len(part) // 2 :], part[: len(part) // 2]))
            elif verdict.then is Then.DENIED and self._tried(part) >= TRIES:
                self._tries.pop(part[0], None)
                self._tally.drop("denied", len(part))
                self._back_off(verdict)
            else:
                self._back_off(verdict)
                undone += part
        return undone

    def _tried(self, part: list[bytes]) -> int:
        if len(self._tries) > 1_000:
            self._tries.clear()
        self._tries[part[0]] += 1
        return self._tries[part[0]]

    def _back_off(self, verdict: Verdict) -> None:
        """Half of the wait is certain and half is chance, so that many clients do not come back together."""
        self._failures += 1
        denied = verdict.then is Then.DENIED
        first, longest = (self._limits.denied_wait_s, LONGEST_WAIT_S) if denied else (_FIRST_WAIT_S, self._limits.wait_s)
        wait_s = min(longest, first * 2 ** min(self._failures - 1, 20))
        wait_s = random.uniform(wait_s / 2, wait_s)
        if verdict.wait_s is not None:
            told_s = verdict.wait_s
            wait_s = max(wait_s, told_s + random.uniform(0.0, min(5.0, 0.1 + told_s / 4)))
        self._not_before = time.monotonic() + wait_s
        logger.info("events wait %.1f s: %s", wait_s, verdict.fault)

    def _settle(self, lines: list[bytes], fates: tuple[Fate, ...]) -> None:
        taken = sum(fate.taken for fate in fates)
        withheld = sum(fate.reason == "no_consent" and not fate.taken for fate in fates)
        with self._tally.lock:
            self._tally.taken += taken
            self._tally.withheld += withheld
            self._tally.refused += len(fates) - taken - withheld
        for line, fate in zip(lines, fates, strict=True):
            if not fate.taken and fate.reason != "no_consent":
                logger.warning("the collector refused an event: %s (%s)", fate.reason, fate.detail)
                self._report(Refused(json.loads(line), fate.code, fate.reason, fate.detail))

    def _report(self, refused: Refused) -> None:
        if self._on_refused is not None:
            try:
                self._on_refused(refused)
            except Exception:
                logger.exception("on_refused failed")


T = TypeVar("T")


def _drain(source: queue.SimpleQueue[T], most: float = math.inf, most_bytes: float = math.inf) -> list[T]:
    taken: list[T] = []
    size_bytes = 0
    while len(taken) < most and size_bytes < most_bytes:
        try:
            taken.append(source.get_nowait())
        except queue.Empty:
            break
        if isinstance(taken[-1], bytes):
            size_bytes += len(taken[-1])
    return taken
