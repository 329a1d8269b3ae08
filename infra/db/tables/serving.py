"""What each gateway says about the versions it holds, and the leases from which it issues turn numbers."""

from __future__ import annotations

from sqlmodel import BigInteger, Field, SQLModel


class ReplicaRow(SQLModel, table=True):
    """One version on one replica. `state`: loading, ready, failed or freed; `reason` says in one sentence why it failed."""

    __tablename__ = "serving_replicas"
    replica: str = Field(primary_key=True)
    version: str = Field(primary_key=True)
    policy: str = Field(index=True)
    state: str
    reason: str | None
    load_ms: float | None
    at_ms: int = Field(sa_type=BigInteger)


class BootRow(SQLModel, table=True):
    """A row per gateway start; its number makes turn ids of different starts distinct."""

    __tablename__ = "serving_boots"
    boot: int | None = Field(default=None, primary_key=True)
    replica: str
    at_ms: int = Field(sa_type=BigInteger)
