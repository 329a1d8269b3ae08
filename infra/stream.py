"""Read topics, apply effects exactly once, publish what follows from them.

Enters: topics of a consumer group. Leaves: rows, written in one transaction with the group's next offsets, and records promised
in the outbox. What can go wrong: a message that cannot be read is buried in `<topic>.dlq` with its place and reason, and the next
one is read; when log or database are away the batch waits and is tried again; when another member went further in a partition,
what it did is left out here.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlmodel import Session, col, select
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential
from tenacity.stop import stop_base

from contracts.errors import Fenced, Poison, Retry
from contracts.record import Record
from contracts.topics import DAY_S, Topic, dead_letter
from infra.db import outbox
from infra.db.engine import reading, writing
from infra.db.tables.stream import OffsetRow, OutboxRow
from infra.eventlog.port import EventLog, Message, Partition

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
        graves = [Topic(dead_letter(t.name), t.record, t.key, 1, 30 * DAY_S) for t in topics]
        log.ensure([*topics, *graves])
        self._next: dict[Partition, int] = {}
        self._newest_ms: dict[Partition, int] = {}
        self._waiting: list[Message] = []
        outbox.flush(engine, log, group)
        self._consumer = log.consumer(group, list(self._records), self._start_offsets)

    def run(self, stop: threading.Event, every_s: float = 1.0, tick: Callable[[], object] | None = None) -> None:
        """Read until told to stop. `tick` is called at least every `every_s` seconds, between batches."""
        due = 0.0
        try:
            while not stop.is_set():
                for attempt in patiently(stop):
                    with attempt:
                        self.step(timeout_s=min(0.5, every_s))
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

        So does what is left of it after another member turned out to have gone further: the rest may be ours to do.
        """
        if not self._waiting:
            self._waiting = self._consumer.poll(timeout_s, most)
        held = self._consumer.assignment()
        fresh = [m for m in self._waiting if m.place in held and m.offset >= self._next.get(m.place, 0)]
        if fresh and not self._settle(fresh):
            return 0
        self._waiting = []
        return len(fresh)

    def watermark_ms(self, now_ms: int) -> dict[Partition, int]:
        """Of each partition held: the time up to which everything that the log took is applied. That is `now_ms` (which must
        have been read before the call) when nothing is unread, else the log's time of the last applied message, else 0."""
        positions = self._consumer.positions()
        ends = {place: end for topic in {place.topic for place in positions} for place, end in self._log.ends(topic).items()}
        unread = {place for place, position in positions.items() if position < ends[place]} | {m.place for m in self._waiting}
        return {place: self._newest_ms.get(place, 0) if place in unread else now_ms for place in positions}

    def close(self) -> None:
        self._consumer.close()

    def _settle(self, messages: Sequence[Message]) -> bool:
        try:
            reached = self._write(messages)
        except Fenced as fenced:
            logger.warning("%s", fenced)
            self._next.update(self._read_offsets(frozenset(message.place for message in messages)))
            return False
        self._next.update(reached)
        self._newest_ms.update({message.place: message.timestamp_ms for message in messages})
        outbox.flush(self._engine, self._log, self._group)
        self._consumer.commit(reached)
        return True

    def _write(self, messages: Sequence[Message]) -> dict[Partition, int]:
        reached: dict[Partition, int] = {}
        for message in messages:
            reached[message.place] = message.offset + 1
        with writing(self._engine) as session:
            self._advance(session, reached)
            deliveries = []
            for message in messages:
                try:
                    deliveries.append(Delivery(message, self._records[message.topic].decode(message.value)))
                except Poison as poison:
                    session.add(self._burial(message, poison))
            self._apply(session, deliveries)
        return reached

    def _advance(self, session: Session, reached: Mapping[Partition, int]) -> None:
        for place, following in reached.items():
            row = session.get(OffsetRow, (self._group, place.topic, place.number), with_for_update=True)
            found = row.next_offset if row else 0
            if found != self._next.get(place, 0):
                raise Fenced(f"{self._group} is at {found} of {place}, not at {self._next.get(place, 0)}: another member went on")
            if row is None:
                row = OffsetRow(consumer_group=self._group, topic=place.topic, partition_number=place.number, next_offset=following)
            row.next_offset = following
            session.add(row)

    def _burial(self, message: Message, poison: Poison) -> OutboxRow:
        logger.error("buried %s[%d]@%d: %s", message.topic, message.partition, message.offset, poison)
        grave = {
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "key": message.key,
            "reason": poison.reason,
            "detail": poison.detail,
            "value": message.value.decode("utf-8", "backslashreplace"),
        }
        return OutboxRow(
            owner=self._group, topic=dead_letter(message.topic), record_key=message.key, value=json.dumps(grave).encode()
        )

    def _start_offsets(self, assigned: frozenset[Partition]) -> dict[Partition, int]:
        starts = self._read_offsets(assigned)
        self._next.update(starts)
        for place in assigned:
            self._newest_ms.pop(place, None)
        return starts

    def _read_offsets(self, places: frozenset[Partition]) -> dict[Partition, int]:
        with reading(self._engine) as session:
            rows = session.exec(
                select(OffsetRow).where(
                    OffsetRow.consumer_group == self._group, col(OffsetRow.topic).in_({place.topic for place in places})
                )
            ).all()
        found = {Partition(row.topic, row.partition_number): row.next_offset for row in rows}
        return {place: found.get(place, 0) for place in places}
