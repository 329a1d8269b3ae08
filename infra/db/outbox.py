"""Publish what a committed transaction promised: records wait in the outbox and are deleted once the log has them.

A crash between the two publishes again; consumers are idempotent, so at least once is enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Engine, delete
from sqlmodel import Session, col, select

from contracts.record import Record
from contracts.topics import Topic
from infra.db.engine import reading, writing
from infra.db.insert import insert_all
from infra.db.tables.stream import OutboxRow
from infra.eventlog.port import Entry, EventLog

_AT_ONCE = 1000


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
    query = select(OutboxRow).where(OutboxRow.owner == owner).order_by(col(OutboxRow.outbox_id)).limit(_AT_ONCE)
    if engine.dialect.name == "postgresql":
        with writing(engine) as session:
            rows = session.exec(query.with_for_update(skip_locked=True)).all()
            _append(log, rows)
            _delete(session, rows)
    else:
        with reading(engine) as session:
            rows = session.exec(query).all()
        _append(log, rows)
        if rows:
            with writing(engine) as session:
                _delete(session, rows)
    return len(rows)


def _append(log: EventLog, rows: Sequence[OutboxRow]) -> None:
    by_topic: dict[str, list[Entry]] = defaultdict(list)
    for row in rows:
        by_topic[row.topic].append(Entry(row.record_key, row.value))
    for topic, entries in by_topic.items():
        log.append(topic, entries)


def _delete(session: Session, rows: Sequence[OutboxRow]) -> None:
    if rows:
        session.execute(delete(OutboxRow).where(col(OutboxRow.outbox_id).in_([row.outbox_id for row in rows])))
