"""A log whose large values lie outside it; stages do not notice.

Enters: entries of any size, to any log. Leaves: messages with their whole values. A value over 256 KiB is put into the payload
folder first and travels as a pointer. What can go wrong, besides what the log's own promise says: a payload that is missing or
altered makes a fault of that one message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from contracts.errors import Poison
from contracts.topics import ALL, DAY_S, Topic
from infra.eventlog.payloads import MARK, Payloads, is_pointer
from infra.eventlog.port import Consumer, Entry, EventLog, Message, OnAssigned, Partition

LARGE_BYTES = 256 * 1024

GRACE_S = DAY_S
"""A payload is kept a day longer than the longest retention: logs delete in steps, never to the second."""


class PayloadLog:
    def __init__(self, log: EventLog, payloads: Payloads) -> None:
        self._log = log
        self._payloads = payloads
        self._longest_s = max(topic.retention_s for topic in ALL)

    def ensure(self, topics: Iterable[Topic]) -> None:
        topics = list(topics)
        self._longest_s = max(self._longest_s, *(topic.retention_s for topic in topics), 0)
        self._log.ensure(topics)

    def append(self, topic: str, entries: Sequence[Entry]) -> None:
        """A value that is a pointer already is one that was dead and is put back; it goes as it is."""
        self._log.append(topic, [Entry(key, self._outside(value)) for key, value in entries])

    def consumer(self, group: str, topics: Sequence[str], on_assigned: OnAssigned | None = None) -> Consumer:
        return PayloadConsumer(self._log.consumer(group, topics, on_assigned), self._payloads)

    def scan(self, topic: str, starts: Mapping[Partition, int] | None = None) -> Iterator[Message]:
        return (whole(message, self._payloads) for message in self._log.scan(topic, starts))

    def ends(self, topic: str) -> dict[Partition, int]:
        return self._log.ends(topic)

    def committed(self, group: str, topic: str) -> dict[Partition, int]:
        return self._log.committed(group, topic)

    def behind(self, group: str, topic: str) -> int:
        return self._log.behind(group, topic)

    def trim(self) -> int:
        gone = self._log.trim()
        self._payloads.trim(self._longest_s + GRACE_S)
        return gone

    def close(self) -> None:
        self._log.close()

    def _outside(self, value: bytes) -> bytes:
        """Other values that begin like a pointer go outside too, so that nothing in the log is taken for one."""
        large = len(value) > LARGE_BYTES or value.startswith(MARK)
        return self._payloads.put(value) if large and not is_pointer(value) else value


class PayloadConsumer:
    """What was polled waits here while the payload folder is away (`Retry`): the next poll begins with it."""

    def __init__(self, consumer: Consumer, payloads: Payloads) -> None:
        self._consumer = consumer
        self._payloads = payloads
        self._polled: list[Message] = []

    def poll(self, timeout_s: float, most: int = 500) -> list[Message]:
        self._polled = self._polled or self._consumer.poll(timeout_s, most)
        found = [whole(message, self._payloads) for message in self._polled]
        self._polled = []
        return found

    def assignment(self) -> frozenset[Partition]:
        return self._consumer.assignment()

    def positions(self) -> dict[Partition, int]:
        positions = self._consumer.positions()
        for message in reversed(self._polled):
            if message.place in positions:
                positions[message.place] = message.offset
        return positions

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self._consumer.commit(offsets)

    def renew(self, places: frozenset[Partition]) -> None:
        self._polled = [message for message in self._polled if message.place not in places]
        self._consumer.renew(places)

    def close(self) -> None:
        self._consumer.close()


def whole(message: Message, payloads: Payloads) -> Message:
    if message.fault is not None or not message.value.startswith(MARK):
        return message
    try:
        return dataclasses.replace(message, value=payloads.get(message.value))
    except Poison as poison:
        return dataclasses.replace(message, fault=poison)
