"""What makes effects exactly once: offsets beside the rows, an outbox for what must be published, leases with a fence."""

from __future__ import annotations

from sqlmodel import BigInteger, Field, SQLModel


class OffsetRow(SQLModel, table=True):
    """Where a group goes on reading, advanced in the transaction of the effects. Whoever is assigned the partition raises
    `generation`, and only the newest writes: a zombie writes nothing."""

    __tablename__ = "stream_offsets"
    consumer_group: str = Field(primary_key=True)
    topic: str = Field(primary_key=True)
    partition_number: int = Field(primary_key=True)
    next_offset: int = Field(sa_type=BigInteger)
    generation: int = Field(default=0, sa_type=BigInteger)


class RetriedRow(SQLModel, table=True):
    """A dead letter that was put back on its topic: never twice."""

    __tablename__ = "stream_retried"
    topic: str = Field(primary_key=True)
    partition_number: int = Field(primary_key=True)
    record_offset: int = Field(sa_type=BigInteger, primary_key=True)
    at_ms: int = Field(sa_type=BigInteger)


class OutboxRow(SQLModel, table=True):
    """A record that must reach the log because this transaction committed. Published at least once, then deleted."""

    __tablename__ = "stream_outbox"
    outbox_id: int | None = Field(default=None, primary_key=True)
    owner: str = Field(index=True)
    topic: str
    record_key: str | None
    value: bytes


class LeaseRow(SQLModel, table=True):
    """Who may do a thing now. `fence` grows with every new holder; writes of an older fence are refused."""

    __tablename__ = "stream_leases"
    name: str = Field(primary_key=True)
    holder: str
    fence: int
    expires_ms: int = Field(sa_type=BigInteger)


class CounterRow(SQLModel, table=True):
    """Things that are counted and of which nothing else is kept."""

    __tablename__ = "stream_counters"
    policy: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    count: int = Field(sa_type=BigInteger)
