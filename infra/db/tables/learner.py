"""Cycles and checkpoints. A checkpoint's row and its samples' consumption are one transaction."""

from __future__ import annotations

from sqlmodel import BigInteger, Field, SQLModel


class CycleRow(SQLModel, table=True):
    """One run of the learner, with the fence under which it may write and its diagnostics as JSON."""

    __tablename__ = "learner_cycles"
    cycle_id: str = Field(primary_key=True)
    policy: str = Field(index=True)
    state: str = Field(index=True)
    fence: int
    parent: str
    version: str
    samples: int
    reason: str | None
    stats: str
    started_ms: int = Field(sa_type=BigInteger)
    ended_ms: int | None = Field(sa_type=BigInteger)


class CheckpointRow(SQLModel, table=True):
    """`published_ms` NULL: sealed, and the topic and MLflow do not know yet."""

    __tablename__ = "learner_checkpoints"
    version: str = Field(primary_key=True)
    policy: str = Field(index=True)
    number: int = Field(index=True)
    parent: str | None
    created_ms: int = Field(sa_type=BigInteger)
    published_ms: int | None = Field(sa_type=BigInteger)
    body: str


class VersionNumberRow(SQLModel, table=True):
    """The last number handed out per policy; a number that was handed out is never used again, whatever became of it."""

    __tablename__ = "learner_version_numbers"
    policy: str = Field(primary_key=True)
    last: int
