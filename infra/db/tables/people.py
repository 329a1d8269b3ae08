"""Who is not to be recorded, who was deleted, what is known of things whose rows are gone. Names and texts are in none of these."""

from __future__ import annotations

from sqlmodel import BigInteger, Field, SQLModel


class OptOutRow(SQLModel, table=True):
    """A person's standing wish, by their hash in the register. The row stays when they opt in again: caches learn from its time."""

    __tablename__ = "people_opt_outs"
    registered: str = Field(primary_key=True)
    out: bool
    changed_ms: int = Field(sa_type=BigInteger, index=True)


class DeletionRow(SQLModel, table=True):
    """A deletion that somebody asked for. `done_ms` NULL: something is left to do; `report` says what was found and what went."""

    __tablename__ = "people_deletions"
    deletion_id: str = Field(primary_key=True)
    asked_ms: int = Field(sa_type=BigInteger)
    done_ms: int | None = Field(sa_type=BigInteger, index=True)
    report: str


class DeletedSubjectRow(SQLModel, table=True):
    """A hash under which a deleted person was stored: nothing of it from before `deleted_ms` may come back."""

    __tablename__ = "people_deleted_subjects"
    subject: str = Field(primary_key=True)
    deletion_id: str = Field(index=True)
    deleted_ms: int = Field(sa_type=BigInteger)


class ErasedRow(SQLModel, table=True):
    """Digest of the id of a turn or an episode of a deleted person: what is told about it later is not kept."""

    __tablename__ = "people_erased"
    digest: bytes = Field(primary_key=True)
    deletion_id: str = Field(index=True)
    deleted_ms: int = Field(sa_type=BigInteger)


class GoneEventRow(SQLModel, table=True):
    """Digest of an event id that was counted and whose row is gone, so that it counts once all the same.

    `refused_as` is the reason if it was a refusal, which is taken back should the event come again, mended.
    """

    __tablename__ = "people_gone_events"
    digest: bytes = Field(primary_key=True)
    refused_as: str | None
    gone_ms: int = Field(sa_type=BigInteger, index=True)


class TouchedRow(SQLModel, table=True):
    """A checkpoint that was trained on, or descends from one that was trained on, samples of a deleted person."""

    __tablename__ = "people_touched"
    deletion_id: str = Field(primary_key=True)
    version: str = Field(primary_key=True)
    policy: str
    samples: int
    state_then: str | None
