"""What the joiner keeps: turns, outcomes with what became of them, refusals, episodes and their revisions."""

from __future__ import annotations

from sqlmodel import BigInteger, Field, SQLModel


class TurnRow(SQLModel, table=True):
    """`joined`: its episode knows of it."""

    __tablename__ = "ingest_turns"
    turn_id: str = Field(primary_key=True)
    episode_id: str = Field(index=True)
    policy: str = Field(index=True)
    version: str | None
    arm: str
    received_ms: int = Field(sa_type=BigInteger)
    joined: bool
    body: str


class OutcomeRow(SQLModel, table=True):
    """One row per event id, for ever: the id counts once. `reason` says why it was refused."""

    __tablename__ = "ingest_outcomes"
    event_id: str = Field(primary_key=True)
    episode_id: str = Field(index=True)
    policy: str = Field(index=True)
    kind: str
    disposition: str = Field(index=True)
    reason: str | None
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
    """The newest state of an episode. `revision` 0: never published."""

    __tablename__ = "ingest_episodes"
    episode_id: str = Field(primary_key=True)
    policy: str = Field(index=True)
    subject: str
    state: str = Field(index=True)
    revision: int
    news_ms: int = Field(sa_type=BigInteger, index=True)
    closed_by: str | None
    closed_ms: int | None = Field(sa_type=BigInteger)


class RevisionRow(SQLModel, table=True):
    """A published revision, whole and immutable."""

    __tablename__ = "ingest_revisions"
    episode_id: str = Field(primary_key=True)
    revision: int = Field(primary_key=True)
    policy: str = Field(index=True)
    body: str
