"""Polling kafka-python's consumer so that a rebalance ends, and does not stop those who keep their partitions.

Enters: waits and limits. Leaves: records. Goes wrong: the client's own errors. Both flaws are of kafka-python 3.0.12 and are worked
around on its coordinator and fetcher, which have no public names: `tests/integration` fails when they change.

1. A join that completes between two polls is thrown away and asked for again. Members that are busy, each at another moment, then
   regroup for ever. Here the finished join is kept until a poll takes it.
2. A poll hands out nothing as long as the group waits for a member that is busy. What a member holds meanwhile it goes on to hold
   (that is what cooperative means), so after a moment it reads on from the fetcher.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import TopicPartition

LONG_REJOIN_S = 0.3
"""All who poll have rejoined by then."""

READ_ON_MS = 100


class PatientPoll:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._rejoins_since: float | None = None

    def __call__(self, wait_ms: int, at_once: int, holds: bool) -> Mapping[TopicPartition, Sequence[Any]]:
        coordinator = self._consumer._coordinator
        if coordinator._join_task is not None and not isinstance(coordinator._join_task, _Join):
            coordinator._join_task = _Join(coordinator._join_task)
        found: Mapping[TopicPartition, Sequence[Any]] = self._consumer.poll(wait_ms, max_records=at_once)
        if not coordinator.rejoining:
            self._rejoins_since = None
        elif self._rejoins_since is None:
            self._rejoins_since = time.monotonic()
        elif not found and holds and time.monotonic() - self._rejoins_since > LONG_REJOIN_S:
            found, _ = self._consumer._fetcher.fetch_records(at_once, timeout_ms=min(wait_ms, READ_ON_MS))
        return found


class _Join:
    """A join that is never done for who asks, so that its result is awaited, at once when it is there, and not asked for anew."""

    is_done = False

    def __init__(self, task: Any) -> None:
        self._task = task

    def add_callback(self, callback: Callable[..., object], *args: object) -> Any:
        return self._task.add_callback(callback, *args)

    def add_errback(self, callback: Callable[..., object], *args: object) -> Any:
        return self._task.add_errback(callback, *args)
