"""Publish what a committed transaction promised: records wait in the outbox and are deleted once the log has them.

A crash between the two publishes again; consumers are idempotent, so at least once is enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Engine, delete
from sqlmodel import Session, col, select

from contracts.record import Record
from contracts.topics import Topic
from infra.db.engine import reading, writing
from infra.db.insert import insert_all
from infra.db.tables.stream import OutboxRow
from infra.eventlog.port import Entry, EventLog

_AT_ONCE = 1000


class Waiting(NamedTuple):
    outbox_id: int
    topic: str
    record_key: str | None
    value: bytes


_COLUMNS: Any = [getattr(OutboxRow, name) for name in Waiting._fields]


def post(session: Session, owner: str, topic: Topic, record: Record) -> None:
    """Promise to publish `record`, if this transaction commits."""
    post_all(session, owner, topic, [record])


def post_all(session: Session, owner: str, topic: Topic, records: Sequence[Record]) -> None:
    rows = [
        {"owner": owner, "topic": topic.name, "record_key": str(getattr(record, topic.key)), "value": record.encode()}
        for record in records
    ]
    insert_all(session, OutboxRow, rows)


def flush(engine: Engine, log: EventLog, owner: str) -> int:
    """Publish what waits, oldest first; answers how many."""
    published = 0
    while count := _publish_some(engine, log, owner):
        published += count
    return published


def _publish_some(engine: Engine, log: EventLog, owner: str) -> int:
    """On PostgreSQL the rows stay locked while they are published, and others of the same owner pass over them. SQLite has one
    lock for everything, which is not held while a log is slow: two processes of one owner may then publish a row twice."""
    waiting = select(OutboxRow.outbox_id).where(OutboxRow.owner == owner).order_by(col(OutboxRow.outbox_id)).limit(_AT_ONCE)
    if engine.dialect.name == "postgresql":
        with writing(engine) as session:
            taken = delete(OutboxRow).where(col(OutboxRow.outbox_id).in_(waiting.with_for_update(skip_locked=True)))
            rows = [Waiting(*row) for row in session.execute(taken.returning(*_COLUMNS)).all()]
            _append(log, rows)
        return len(rows)
    with reading(engine) as session:
        table = OutboxRow.__table__  # type: ignore[attr-defined]
        found = session.execute(table.select().with_only_columns(*_COLUMNS).where(table.c.outbox_id.in_(waiting)))
        rows = [Waiting(*row) for row in found.all()]
    if rows:
        _append(log, rows)
        with writing(engine) as session:
            session.execute(delete(OutboxRow).where(col(OutboxRow.outbox_id).in_([row.outbox_id for row in rows])))
    return len(rows)


def _append(log: EventLog, rows: Sequence[Waiting]) -> None:
    by_topic: dict[str, list[Entry]] = defaultdict(list)
    for row in sorted(rows):
        by_topic[row.topic].append(Entry(row.record_key, row.value))
    for topic, entries in by_topic.items():
        log.append(topic, entries)
