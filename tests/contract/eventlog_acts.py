"""What the tests of an event log do again and again: make names, write numbered records, poll until something is so."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence

from contracts.outcome import Refusal
from contracts.topics import Topic
from infra.eventlog.port import Consumer, Entry, Message, Partition

PATIENCE_S = 40.0

_slowness = [1.0]

Join = Callable[..., Consumer]


def slow_down(factor: float) -> None:
    """For a log whose groups take long to form: everything here waits so many times longer."""
    _slowness[0] = factor


def patience(seconds: float) -> float:
    return seconds * _slowness[0]


def new_topic(partitions: int = 4) -> Topic:
    return Topic(f"t-{uuid.uuid4().hex[:12]}", Refusal, "refusal_id", partitions, 86_400)


def new_group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


def places(topic: Topic) -> frozenset[Partition]:
    return frozenset(Partition(topic.name, number) for number in range(topic.partitions))


def numbered(count: int, keys: int = 1, start: int = 0) -> list[Entry]:
    return [Entry(f"key-{n % keys}", str(n).encode()) for n in range(start, start + count)]


def until(done: Callable[[list[Message]], object], consumers: Sequence[Consumer], patience_s: float = PATIENCE_S) -> list[Message]:
    """Poll all in turn until what they read, which is the answer, makes it done."""
    deadline = time.monotonic() + patience(patience_s)
    read: list[Message] = []
    while not done(read):
        assert time.monotonic() < deadline, "it did not come to that in time"
        for consumer in consumers:
            read += consumer.poll(0.05)
    return read


def take(consumer: Consumer, count: int) -> list[Message]:
    """The next `count` messages, and a look whether there are more than that."""
    read: list[Message] = []
    deadline = time.monotonic() + patience(PATIENCE_S)
    while len(read) < count and time.monotonic() < deadline:
        read += consumer.poll(0.1)
    return read + consumer.poll(0.05)


def values(messages: Iterable[Message]) -> list[int]:
    return [int(message.value) for message in messages]


def by_place(messages: Iterable[Message]) -> dict[Partition, list[Message]]:
    found: dict[Partition, list[Message]] = {}
    for message in messages:
        found.setdefault(message.place, []).append(message)
    return found


def commit(consumer: Consumer, read: Sequence[Message]) -> None:
    consumer.commit({message.place: message.offset + 1 for message in read})


def until_read(consumer: Consumer, most: int) -> list[Message]:
    deadline = time.monotonic() + patience(PATIENCE_S)
    while time.monotonic() < deadline:
        if read := consumer.poll(0.1, most):
            return read
    raise AssertionError("nothing was read")
