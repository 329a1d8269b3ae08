"""Where events wait that could not be sent: on disk, and in memory when there is no disk or it fails.

Enters: lines that are still to be sent. Leaves: the same, the oldest first. Bounded both ways; what has no room is dropped and
counted. Only one thread at a time uses it, except at the end of the program, when `lock` says who.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from slipstream_events.limits import Limits
from slipstream_events.spool import Claim, DiskSpool
from slipstream_events.tally import Tally

logger = logging.getLogger("slipstream_events")


class Backlog:
    def __init__(self, folder: Path | None, limits: Limits, tally: Tally) -> None:
        self.lock = threading.RLock()
        self._disk = (
            None if folder is None else DiskSpool(folder, tally, limits.spool_bytes, limits.spool_age_s, limits.batch_events)
        )
        self._memory: deque[list[bytes]] = deque()
        self._memory_bytes = 0
        self._most_bytes = min(limits.spool_bytes, limits.queue_bytes)
        self._tally = tally

    def add(self, lines: Sequence[bytes]) -> None:
        """Lines in memory stay `queued`, those on disk are `spooled`."""
        if not lines:
            return
        with self.lock:
            if self._disk is not None:
                try:
                    self._disk.add(lines)
                except OSError as error:
                    logger.warning("the spool cannot be written: %s", error)
                else:
                    self._tally.leave(len(lines), sum(map(len, lines)))
                    with self._tally.lock:
                        self._tally.spooled += len(lines)
                    return
            self._memory.append(list(lines))
            self._memory_bytes += sum(map(len, lines))
            while self._memory_bytes > self._most_bytes and len(self._memory) > 1:
                self._lose(self._memory.popleft(), "spool_full")

    def claim(self, on_disk: bool = True) -> MemoryClaim | DiskClaim | None:
        """`on_disk` False: only what would be lost with this process."""
        with self.lock:
            try:
                if on_disk and self._disk is not None and (claim := self._disk.claim()) is not None:
                    return DiskClaim(self, claim, self._tally)
            except OSError as error:
                logger.warning("the spool cannot be read: %s", error)
            if not self._memory:
                return None
            lines = self._memory.popleft()
            self._memory_bytes -= sum(map(len, lines))
            return MemoryClaim(self, lines, self._tally)

    def put_first(self, lines: list[bytes]) -> None:
        with self.lock:
            self._memory.appendleft(lines)
            self._memory_bytes += sum(map(len, lines))

    def abandon(self) -> None:
        """The program ends: what has no disk to wait on is lost."""
        with self.lock:
            while self._memory:
                self._lose(self._memory.popleft(), "exit")

    def _lose(self, lines: list[bytes], reason: str) -> None:
        self._memory_bytes -= sum(map(len, lines))
        self._tally.leave(len(lines), sum(map(len, lines)))
        self._tally.drop(reason, len(lines))


class MemoryClaim:
    def __init__(self, backlog: Backlog, lines: list[bytes], tally: Tally) -> None:
        self.lines = lines
        self._backlog = backlog
        self._tally = tally

    def settle(self, undone: list[bytes]) -> None:
        self._tally.leave(len(self.lines) - len(undone), sum(map(len, self.lines)) - sum(map(len, undone)))
        if undone:
            self._backlog.put_first(undone)


class DiskClaim:
    def __init__(self, backlog: Backlog, claim: Claim, tally: Tally) -> None:
        self.lines = claim.lines
        self._backlog = backlog
        self._claim = claim
        self._tally = tally

    def settle(self, undone: list[bytes]) -> None:
        with self._tally.lock:
            self._tally.recovered += len(self.lines) - len(undone)
        try:
            if undone:
                self._claim.give_back(undone)
            else:
                self._claim.done()
        except OSError as error:
            logger.warning("the spool cannot be written: %s", error)
            if undone:
                with self._tally.lock:
                    self._tally.recovered += len(undone)
                    self._tally.queued += len(undone)
                    self._tally.queued_bytes += sum(map(len, undone))
                self._backlog.put_first(undone)
