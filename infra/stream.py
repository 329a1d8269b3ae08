"""Read topics, apply effects exactly once, publish what follows from them.

Enters: topics of a consumer group. Leaves: rows, written in one transaction with the group's next offsets, and records promised
in the outbox. What can go wrong: a message that cannot be read is buried in `<topic>.dlq` with its place and reason, and the next
one is read; when log or database are away the batch waits and is tried again; when another member went further in a partition,
what it did is left out here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlmodel import Session
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential
from tenacity.stop import stop_base

from contracts.errors import Poison, Retry
from contracts.record import Record
from contracts.topics import Topic, grave
from infra.db import outbox
from infra.db.engine import writing
from infra.dead_letters import burial
from infra.eventlog.port import EventLog, Message, Partition
from infra.offsets import Claim, Overtaken, advance, claim

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record and where it lay."""

    message: Message
    record: Record


Apply = Callable[[Session, Sequence[Delivery]], None]
"""Writes the effects of a batch with the session it is given, and promises records through `outbox.post`."""


class _StopWhen(stop_base):
    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __call__(self, _state: RetryCallState) -> bool:
        return self._stop.is_set()


def patiently(stop: threading.Event) -> Retrying:
    """Try again while something outside is away, until `stop` is set; each wait is longer, up to 5 seconds, with jitter."""

    def wait(seconds: float) -> None:
        stop.wait(seconds)

    return Retrying(
        retry=retry_if_exception_type(Retry),
        wait=wait_random_exponential(multiplier=0.05, max=5.0),
        stop=_StopWhen(stop),
        sleep=wait,
        before_sleep=lambda state: logger.warning("waiting: %s", state.outcome.exception() if state.outcome else None),
        reraise=True,
    )


class Stream:
    """A group's view of some topics. `run` reads until `stop` is set; `step` does one batch."""

    def __init__(self, engine: Engine, log: EventLog, group: str, topics: Sequence[Topic], apply: Apply) -> None:
        self._engine = engine
        self._log = log
        self._group = group
        self._records = {topic.name: topic.record for topic in topics}
        self._apply = apply
        log.ensure([*topics, *map(grave, topics)])
        self._claims: dict[Partition, Claim] = {}
        self._newest_ms: dict[Partition, int] = {}
        self._waiting: list[Message] = []
        outbox.flush(engine, log, group)
        self._consumer = log.consumer(group, list(self._records), self._claim)

    def run(self, stop: threading.Event, every_s: float = 1.0, tick: Callable[[], object] | None = None, most: int = 500) -> None:
        """Read until told to stop, `most` messages at once. `tick` is called at least every `every_s` seconds, between batches."""
        due = 0.0
        try:
            while not stop.is_set():
                for attempt in patiently(stop):
                    with attempt:
                        self.step(timeout_s=min(0.5, every_s), most=most)
                        if tick is not None and time.monotonic() >= due:
                            tick()
                            outbox.flush(self._engine, self._log, self._group)
                            due = time.monotonic() + every_s
        except Retry:
            if not stop.is_set():
                raise
        finally:
            self.close()

    def step(self, timeout_s: float = 0.5, most: int = 500) -> int:
        """Read one batch and apply it; answers how many messages it had. After `Retry` the same batch comes again.

        So does what is left of it after another member turned out to have taken over a part: the rest is ours to do.
        """
        if not self._waiting:
            self._waiting = self._consumer.poll(timeout_s, most)
        held = self._consumer.assignment()
        fresh = [m for m in self._waiting if m.place in held and m.place in self._claims]
        fresh = [m for m in fresh if m.offset >= self._claims[m.place].next_offset]
        if fresh and not self._settle(fresh):
            return 0
        self._waiting = []
        return len(fresh)

    def watermark_ms(self, now_ms: int) -> dict[Partition, int]:
        """Of each partition held: the time up to which everything that the log took is applied. That is `now_ms` (which must
        have been read before the call) when nothing is unread, else the log's time of the last applied message, else 0."""
        positions = self._consumer.positions()
        ends = {place: end for topic in {place.topic for place in positions} for place, end in self._log.ends(topic).items()}
        read = {place for place, position in positions.items() if position >= ends.get(place, position + 1)}
        read -= {message.place for message in self._waiting}
        return {place: now_ms if place in read else self._newest_ms.get(place, 0) for place in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()

    def _settle(self, messages: Sequence[Message]) -> bool:
        reached = {message.place: message.offset + 1 for message in messages}
        try:
            self._write(messages, reached)
        except Overtaken as overtaken:
            logger.warning("%s", overtaken)
            self._waiting = [message for message in messages if message.place not in overtaken.places]
            for place in overtaken.places:
                self._claims.pop(place, None)
            self._consumer.renew(overtaken.places)
            return False
        for place, following in reached.items():
            self._claims[place] = Claim(self._claims[place].generation, following)
        self._newest_ms.update({message.place: message.timestamp_ms for message in messages})
        outbox.flush(self._engine, self._log, self._group)
        self._consumer.commit(reached)
        return True

    def _write(self, messages: Sequence[Message], reached: Mapping[Partition, int]) -> None:
        with writing(self._engine) as session:
            advance(session, self._group, reached, self._claims)
            deliveries = []
            for message in messages:
                try:
                    deliveries.append(Delivery(message, self._read(message)))
                except Poison as poison:
                    logger.error("buried %s[%d]@%d: %s", message.topic, message.partition, message.offset, poison.reason)
                    session.add(burial(self._group, message, poison))
            self._apply(session, deliveries)

    def _read(self, message: Message) -> Record:
        if message.fault is not None:
            raise message.fault
        return self._records[message.topic].decode(message.value)

    def _claim(self, assigned: frozenset[Partition]) -> dict[Partition, int]:
        """In one transaction for all of them: whoever had them before writes nothing more, not even a part."""
        topics = {place.topic for place in assigned}

        def read_ends() -> dict[Partition, int]:
            return {place: end for topic in topics for place, end in self._log.ends(topic).items()}

        ends = read_ends()
        with writing(self._engine) as session:
            claims = claim(session, self._group, assigned, ends, read_ends)
        self._claims.update(claims)
        for place in assigned:
            self._newest_ms.pop(place, None)
        self._waiting = [message for message in self._waiting if message.place not in assigned]
        return {place: found.next_offset for place, found in claims.items()}
