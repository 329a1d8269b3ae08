"""Dead letters: burying what cannot be read, finding it again, putting it back.

Enters: a message and why it is poison; later an operator's wish. Leaves: a `DeadLetter` on `<topic>.dlq`; the very bytes on the
original topic, never twice. What can go wrong: the log or the database are away (`Retry`); then nothing has happened, or the
promise stands and the next call keeps it.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlmodel import Session, col, delete, select

from contracts.dead_letter import DeadLetter
from contracts.errors import Poison, Retry, UnknownName
from contracts.topics import dead_letter
from infra.db import outbox
from infra.db.engine import reading, writing
from infra.db.insert import insert_new
from infra.db.lease import acquire
from infra.db.query import Engine
from infra.db.tables.stream import LeaseRow, OutboxRow, RetriedRow
from infra.eventlog.port import EventLog, Message
from infra.people.scan import withhold

logger = logging.getLogger(__name__)

OWNER = "dlq"
"""Of what `put_back` promises in the outbox, and of the lease under which it does."""

BUSY_MS = 60_000
AT_ONCE = 100


def burial(owner: str, message: Message, poison: Poison) -> OutboxRow:
    """The promise to bury, for the transaction that moves on past the message."""
    letter = DeadLetter(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=None if message.key is None else _readable(message.key),
        reason=_readable(poison.reason),
        detail=withhold(_readable(poison.detail)),
        value=message.value,
        at=datetime.now(UTC),
    )
    return OutboxRow(owner=owner, topic=dead_letter(message.topic), record_key=None, value=letter.encode())


def _readable(text: str) -> str:
    """JSON carries no lone surrogates, PostgreSQL's text no NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


@dataclass(frozen=True)
class Buried:
    """`retried_at` is None as long as nobody put it back."""

    letter: DeadLetter
    retried_at: datetime | None

    @property
    def place(self) -> str:
        return f"{self.letter.topic}[{self.letter.partition}]@{self.letter.offset}"


def buried(engine: Engine, log: EventLog, topics: Sequence[str]) -> Iterator[Buried]:
    """What lies in the graves of these topics, each topic's oldest first; a letter that was published twice is one."""
    with reading(engine) as session:
        retried = {
            (row.topic, row.partition_number, row.record_offset): datetime.fromtimestamp(row.at_ms / 1000, UTC)
            for row in session.exec(select(RetriedRow)).all()
        }
    for topic in topics:
        seen: set[tuple[str, int, int]] = set()
        for letter in _letters(log, topic):
            place = (letter.topic, letter.partition, letter.offset)
            if place not in seen:
                seen.add(place)
                yield Buried(letter, retried.get(place))


def put_back(engine: Engine, log: EventLog, chosen: Iterable[Buried]) -> Iterator[tuple[Buried, bool]]:
    """The very bytes under the same key, on the topic they came from; tells of each whether this call did it or an earlier one.

    The row that remembers and the promise are one transaction. A kill between publishing and forgetting the promise publishes
    again at the next call, as everywhere: ids count once."""
    holder = f"{os.getpid()}-{time.monotonic_ns()}"
    try:
        _hold(engine, holder)
        outbox.flush(engine, log, OWNER)
        remaining = iter(chosen)
        while some := list(itertools.islice(remaining, AT_ONCE)):
            _hold(engine, holder)
            with writing(engine) as session:
                done = [(each, _promise(session, each.letter)) for each in some]
            outbox.flush(engine, log, OWNER)
            yield from done
    finally:
        with writing(engine) as session:
            session.execute(delete(LeaseRow).where(col(LeaseRow.name) == OWNER, col(LeaseRow.holder) == holder))


def _hold(engine: Engine, holder: str) -> None:
    with writing(engine) as session:
        if acquire(session, OWNER, holder, _now_ms(), BUSY_MS) is None:
            raise Retry("another `slipstream dlq retry` runs; try again when it is done")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _promise(session: Session, letter: DeadLetter) -> bool:
    row = RetriedRow(topic=letter.topic, partition_number=letter.partition, record_offset=letter.offset, at_ms=_now_ms())
    if not insert_new(session, RetriedRow, [row]):
        return False
    session.add(OutboxRow(owner=OWNER, topic=letter.topic, record_key=letter.key, value=letter.value))
    return True


def _letters(log: EventLog, topic: str) -> Iterator[DeadLetter]:
    """A topic that nobody buried anything from may have no grave yet."""
    try:
        messages = log.scan(dead_letter(topic))
        for message in messages:
            try:
                if message.fault is not None:
                    raise message.fault
                yield DeadLetter.decode(message.value)
            except Poison as poison:
                logger.warning("%s[%d]@%d is no dead letter: %s", message.topic, message.partition, message.offset, poison)
    except UnknownName:
        return
