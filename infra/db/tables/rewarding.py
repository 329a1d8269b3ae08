"""Rewards with the columns that gates and tables need, their parts, and samples with their lifecycle."""

from __future__ import annotations

from sqlmodel import BigInteger, Field, SQLModel


class RewardRow(SQLModel, table=True):
    """The reward of an episode's newest rewarded revision under one spec, beside the exposure that earned it."""

    __tablename__ = "rewarding_rewards"
    episode_id: str = Field(primary_key=True)
    spec: str = Field(primary_key=True)
    revision: int
    policy: str = Field(index=True)
    version: str | None = Field(index=True)
    arm: str
    experiment: str | None = Field(index=True)
    step: int | None
    subject: str = Field(index=True)
    finish: str
    latency_ms: float | None
    value: float | None
    closed_ms: int = Field(sa_type=BigInteger)
    body: str


class RewardPartRow(SQLModel, table=True):
    """One extractor's value; NULL where it had nothing to say."""

    __tablename__ = "rewarding_parts"
    episode_id: str = Field(primary_key=True)
    spec: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    value: float | None
    weight: float


class SampleRow(SQLModel, table=True):
    """`lag_version`: the oldest version that sampled any of its tokens."""

    __tablename__ = "rewarding_samples"
    sample_id: str = Field(primary_key=True)
    policy: str = Field(index=True)
    revision: int
    state: str = Field(index=True)
    reason: str | None
    cycle_id: str | None = Field(index=True)
    lag_version: str | None = Field(index=True)
    subject: str = Field(index=True)
    reward: float
    sampled_ms: int = Field(sa_type=BigInteger, index=True)
    body: str
