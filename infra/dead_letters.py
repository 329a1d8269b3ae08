"""Dead letters: burying what cannot be read, finding it again, putting it back.

Enters: a message and why it is poison; later an operator's wish. Leaves: a `DeadLetter` on `<topic>.dlq`; the very bytes on the
original topic, never twice. What can go wrong: the log or the database are away (`Retry`); then nothing has happened, or the
promise stands and the next call keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlmodel import Session, select

from contracts.dead_letter import DeadLetter
from contracts.errors import Poison
from contracts.topics import ALL, dead_letter
from infra.db import outbox
from infra.db.engine import reading, writing
from infra.db.insert import insert_new
from infra.db.query import Engine
from infra.db.tables.stream import OutboxRow, RetriedRow
from infra.eventlog.port import Entry, EventLog, Message, Partition

OWNER = "dlq"
"""Of what `retry` promises in the outbox."""


def burial(owner: str, message: Message, poison: Poison) -> OutboxRow:
    """The promise to bury, for the transaction that moves on past the message."""
    letter = DeadLetter(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=None if message.key is None else _readable(message.key),
        reason=_readable(poison.reason),
        detail=_readable(poison.detail),
        value=message.value,
        at=datetime.now(UTC),
    )
    return OutboxRow(owner=owner, topic=dead_letter(message.topic), record_key=None, value=letter.encode())


def _readable(text: str) -> str:
    """JSON carries no lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()
