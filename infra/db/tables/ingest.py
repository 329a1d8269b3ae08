"""What the joiner keeps: turns, outcomes with what became of them, refusals, episodes and their revisions.

`partition_number` is the partition from which a row was read: whoever reads that partition decides when its time is over.
"""

from __future__ import annotations

import time

from sqlalchemy import Index, text
from sqlmodel import BigInteger, Field, SQLModel

_OPEN = text("state = 'open'")
_WAITING = text("disposition = 'waiting'")


class TurnRow(SQLModel, table=True):
    __tablename__ = "ingest_turns"
    turn_id: str = Field(primary_key=True)
    episode_id: str = Field(index=True)
    subject: str = Field(index=True)
    policy: str = Field(index=True)
    version: str | None
    arm: str
    started_ms: int = Field(sa_type=BigInteger)
    received_ms: int = Field(sa_type=BigInteger)
    body: str


class OutcomeRow(SQLModel, table=True):
    """One row per event id, for ever: the id counts once. `reason` says why it was refused."""

    __tablename__ = "ingest_outcomes"
    __table_args__ = (
        Index("ix_ingest_outcomes_waiting", "partition_number", "received_ms", sqlite_where=_WAITING, postgresql_where=_WAITING),
    )
    event_id: str = Field(primary_key=True)
    episode_id: str = Field(index=True)
    turn_id: str | None
    policy: str
    kind: str
    disposition: str
    reason: str | None
    partition_number: int
    received_ms: int = Field(sa_type=BigInteger)
    body: str


class RefusalRow(SQLModel, table=True):
    """An event that the collector or the joiner could not take."""

    __tablename__ = "ingest_refusals"
    refusal_id: str = Field(primary_key=True)
    event_id: str | None = Field(index=True)
    policy: str | None = Field(index=True)
    reason: str
    detail: str
    received_ms: int = Field(sa_type=BigInteger)


class EpisodeRow(SQLModel, table=True):
    """The newest state of an episode. `revision` 0: never published. `news_ms`: the time of the last thing that happened."""

    __tablename__ = "ingest_episodes"
    __table_args__ = (
        Index("ix_ingest_episodes_open", "partition_number", "policy", "news_ms", sqlite_where=_OPEN, postgresql_where=_OPEN),
    )
    episode_id: str = Field(primary_key=True)
    policy: str
    subject: str = Field(index=True)
    partition_number: int
    state: str
    revision: int
    news_ms: int = Field(sa_type=BigInteger)
    closed_by: str | None
    closed_ms: int | None = Field(sa_type=BigInteger)


def _now_ms() -> int:
    return int(time.time() * 1000)


class RevisionRow(SQLModel, table=True):
    """A published revision, whole and immutable. `published_ms`: by this machine's clock; retention counts from there."""

    __tablename__ = "ingest_revisions"
    episode_id: str = Field(primary_key=True)
    revision: int = Field(primary_key=True)
    policy: str
    published_ms: int = Field(default_factory=_now_ms, sa_type=BigInteger, sa_column_kwargs={"default": _now_ms})
    body: str
