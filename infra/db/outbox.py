"""Publish what a committed transaction promised: records wait in the outbox and are deleted once the log has them.

A crash between the two publishes again; consumers are idempotent, so at least once is enough.
"""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Engine, delete
from sqlmodel import Session, col, select

from contracts.record import Record
from contracts.topics import Topic
from infra.db.engine import reading, writing
from infra.db.tables.stream import OutboxRow
from infra.eventlog.port import Entry, EventLog

_AT_ONCE = 1000


def post(session: Session, owner: str, topic: Topic, record: Record) -> None:
    """Promise to publish `record`, if this transaction commits."""
    key = str(getattr(record, topic.key))
    session.add(OutboxRow(owner=owner, topic=topic.name, record_key=key, value=record.encode()))


def flush(engine: Engine, log: EventLog, owner: str) -> int:
    """Publish what waits, oldest first; answers how many."""
    published = 0
    while True:
        with reading(engine) as session:
            query = select(OutboxRow).where(OutboxRow.owner == owner).order_by(col(OutboxRow.outbox_id)).limit(_AT_ONCE)
            rows = session.exec(query).all()
        if not rows:
            return published
        by_topic: dict[str, list[Entry]] = defaultdict(list)
        for row in rows:
            by_topic[row.topic].append(Entry(row.record_key, row.value))
        for topic, entries in by_topic.items():
            log.append(topic, entries)
        with writing(engine) as session:
            session.execute(delete(OutboxRow).where(col(OutboxRow.outbox_id).in_([row.outbox_id for row in rows])))
        published += len(rows)
