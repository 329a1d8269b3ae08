"""What every event log promises.

A topic has partitions; records with one key keep their order; a consumer group shares the partitions among its members and
gives a dead member's partitions to the others. Delivery is at least once: where a member starts to read is the caller's answer
to `on_assigned` (usually the offset in its own database, written in one transaction with the effects), so that effects are
exactly once.

Offsets of a partition grow strictly and may have gaps; `offset + 1` is always the place to go on from.

Topics with equally many partitions, read by the same members, are shared alike: records of one key meet in one member even
when they travel on several topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from contracts.errors import Poison
from contracts.topics import Topic


class Partition(NamedTuple):
    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Message:
    """One record as it lies in the log. `timestamp_ms` is when the log took it (Unix, milliseconds). With a `fault` it cannot be
    read, and `value` is what there is of it."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: bytes
    timestamp_ms: int
    fault: Poison | None = None

    @property
    def place(self) -> Partition:
        return Partition(self.topic, self.partition)


class Entry(NamedTuple):
    """Something to append."""

    key: str | None
    value: bytes


OnAssigned = Callable[[frozenset[Partition]], Mapping[Partition, int]]
"""Called with the partitions just assigned; answers the offset to start each from (absent: the group's committed, else 0)."""


class Consumer(Protocol):
    """One member of a group. Not thread-safe: one thread polls it."""

    def poll(self, timeout_s: float, most: int = 500) -> list[Message]:
        """Up to `most` messages, waiting at most `timeout_s`; also keeps the membership alive and takes part in rebalances."""
        ...

    def assignment(self) -> frozenset[Partition]: ...

    def positions(self) -> dict[Partition, int]:
        """From where each partition that is held will be read next: past what was polled and past what retention took."""
        ...

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Tell the log the next offset of each partition (for lag, and for groups without a database of their own).

        A partition that meanwhile went to another member is left out: its new owner commits."""
        ...

    def renew(self, places: frozenset[Partition]) -> None:
        """Take these, where they are still this member's after the next poll, for just assigned: `on_assigned` is asked again."""
        ...

    def close(self) -> None:
        """Leave the group, so that others need not wait for a timeout."""
        ...


class EventLog(Protocol):
    def ensure(self, topics: Iterable[Topic]) -> None:
        """Create what does not exist yet, with the right partitions and retention. Harmless when repeated or raced."""
        ...

    def append(self, topic: str, entries: Sequence[Entry]) -> None:
        """Durable when it returns. Raises `Retry` when the log is away (some entries may be in it all the same, and are
        there twice when tried again), `UnknownName` for a topic that nobody created, `Poison` for a record too large for it."""
        ...

    def consumer(self, group: str, topics: Sequence[str], on_assigned: OnAssigned | None = None) -> Consumer: ...

    def scan(self, topic: str, starts: Mapping[Partition, int] | None = None) -> Iterator[Message]:
        """All that lies in a topic at the time of the call, each partition's in order, from `starts` (else its beginning) on.
        No group takes part, nobody's place moves."""
        ...

    def ends(self, topic: str) -> dict[Partition, int]:
        """The offset that the next record of each partition will get."""
        ...

    def committed(self, group: str, topic: str) -> dict[Partition, int]:
        """The next offset of each partition as the group last committed it (0 where it never did)."""
        ...

    def behind(self, group: str, topic: str) -> int:
        """How many records the group has not committed yet (several entries may share one)."""
        ...

    def trim(self) -> int:
        """Let go of what is older than its topic's retention; answers how many records went (0 where the log does so by itself)."""
        ...

    def close(self) -> None: ...
