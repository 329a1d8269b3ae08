"""What became of the events, counted. Every event that was told is in exactly one place:

told = taken + refused + withheld + dropped + queued + (spooled - recovered), summed over the processes that share a spool.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

logger = logging.getLogger("slipstream_events")


@dataclass(frozen=True, slots=True)
class Stats:
    """A moment's figures, in events (`requests` and `retries` in requests)."""

    told: int
    taken: int
    refused: int
    """The collector refused them one by one, with reasons; see `on_refused`."""
    withheld: int
    """Told without consent: the collector has counted them and kept nothing."""
    dropped: Mapping[str, int]
    """By reason: queue_full, too_large, not_json, naive_time, bad_call, closed, spool_full, too_old, denied, server_error, ..."""
    queued: int
    """In memory, in flight included."""
    spooled: int
    """Written to the spool by this client, ever."""
    recovered: int
    """Taken out of the spool by this client, ever, whoever wrote them."""
    requests: int
    retries: int
    last_fault: str | None
    """Why the last request failed; None after one that did not."""


class Tally:
    """Re-entrant, because a signal handler or a destructor may tell something in the middle of a count."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.told = self.taken = self.refused = self.withheld = 0
        self.queued = self.queued_bytes = 0
        self.spooled = self.recovered = 0
        self.requests = self.retries = 0
        self.last_fault: str | None = None
        self._dropped: Counter[str] = Counter()

    def drop(self, reason: str, events: int = 1) -> None:
        if events:
            with self.lock:
                first = reason not in self._dropped
                self._dropped[reason] += events
            if first:
                logger.warning("events are dropped: %s; further ones are only counted (client.stats)", reason)

    def admit(self, size_bytes: int, most_events: int, most_bytes: int) -> bool:
        with self.lock:
            if self.queued >= most_events or self.queued_bytes + size_bytes > most_bytes:
                return False
            self.queued += 1
            self.queued_bytes += size_bytes
            return True

    def leave(self, events: int, size_bytes: int) -> None:
        with self.lock:
            self.queued -= events
            self.queued_bytes -= size_bytes

    def stats(self) -> Stats:
        with self.lock:
            return Stats(
                told=self.told,
                taken=self.taken,
                refused=self.refused,
                withheld=self.withheld,
                dropped=dict(self._dropped),
                queued=self.queued,
                spooled=self.spooled,
                recovered=self.recovered,
                requests=self.requests,
                retries=self.retries,
                last_fault=self.last_fault,
            )
