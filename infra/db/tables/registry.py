"""The ledger: state of each version, the routing of each policy, every move with who and why, gate results, bench reports."""

from __future__ import annotations

from sqlmodel import BigInteger, Field, SQLModel


class VersionRow(SQLModel, table=True):
    """Where a version stands; moved by compare-and-set on `state`."""

    __tablename__ = "registry_versions"
    version: str = Field(primary_key=True)
    policy: str = Field(index=True)
    number: int
    state: str = Field(index=True)
    since_ms: int = Field(sa_type=BigInteger)
    mirrored_state: str | None
    body: str


class RolloutRow(SQLModel, table=True):
    """The routing of a policy as it stands now, and when its present step began."""

    __tablename__ = "registry_rollouts"
    policy: str = Field(primary_key=True)
    revision: int
    step_since_ms: int = Field(sa_type=BigInteger)
    body: str


class AuditRow(SQLModel, table=True):
    """A move: from where to where, who, why, on what evidence (JSON)."""

    __tablename__ = "registry_audit"
    audit_id: int | None = Field(default=None, primary_key=True)
    policy: str = Field(index=True)
    version: str = Field(index=True)
    before: str | None
    after: str
    step: int | None
    who: str
    why: str
    evidence: str
    at_ms: int = Field(sa_type=BigInteger)


class GateRow(SQLModel, table=True):
    """The newest result of a gate for a version at a step (-1: before traffic)."""

    __tablename__ = "registry_gates"
    version: str = Field(primary_key=True)
    step: int = Field(primary_key=True)
    gate: str = Field(primary_key=True)
    policy: str = Field(index=True)
    verdict: str
    at_ms: int = Field(sa_type=BigInteger)
    body: str


class EvalReportRow(SQLModel, table=True):
    __tablename__ = "registry_eval_reports"
    version: str = Field(primary_key=True)
    suite: str = Field(primary_key=True)
    policy: str = Field(index=True)
    at_ms: int = Field(sa_type=BigInteger)
    body: str
