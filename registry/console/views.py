"""What `GET /api/overview` answers: everything about one policy at one moment, as records.

Rates carry their interval (95 %, one look) and their size. A figure that cannot be had is null, never 0. Times are UTC.
"""

from __future__ import annotations

from typing import Literal

from contracts.record import Moment, Record
from contracts.states import CheckpointState
from contracts.verdict import Verdict

Tone = Literal["empty", "steady", "moving", "good", "bad"]


class Figure(Record):
    value: float
    low: float | None
    high: float | None
    n: int


class PartFigure(Record):
    """A reward part's mean over the episodes it had something to say about; weight 0: measured, not paid."""

    name: str
    weight: float
    mean: float
    n: int


class VersionFigures(Record):
    """What people did with one version's answers. `requests` are episodes judged so far, without those asked for by version."""

    version: str
    requests: int
    rewarded: int
    shown: int
    accepted: int
    accept_rate: Figure | None
    silent_share: Figure | None
    reward: Figure | None
    accepted_characters: float | None
    parts: tuple[PartFigure, ...]


class VersionView(Record):
    """A version of the ledger and why it stands where it stands."""

    version: str
    number: int
    state: CheckpointState
    since: Moment
    parent: str | None
    samples: int
    reason: str
    share: float
    figures: VersionFigures | None


class GateView(Record):
    gate: str
    verdict: Verdict
    reason: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    at: Moment


class StepView(Record):
    share: float
    stand: Literal["done", "now", "ahead"]
    min_requests: int
    min_subjects: int
    min_seconds: float
    max_seconds: float


class RolloutView(Record):
    """The routing as it stands, or as the last candidate left it: then `candidate` is null and `gates` are that one's last ones."""

    revision: int
    champion: str
    candidate: str | None
    candidate_state: CheckpointState | None
    step: int | None
    share: float
    reason: str
    since: Moment
    requests: int
    subjects: int
    unsure_means: str
    steps: tuple[StepView, ...]
    gates_of: str | None
    gates: tuple[GateView, ...]


class CycleView(Record):
    """A run of the learner with its diagnostics; `reason` says why it took no step."""

    cycle_id: str
    state: str
    parent: str
    version: str
    samples: int
    reason: str | None
    stats: dict[str, float]
    started: Moment
    ended: Moment | None


class AuditView(Record):
    at: Moment
    version: str
    before: str | None
    after: str
    step: int | None
    who: str
    why: str


class Count(Record):
    name: str
    count: int


class Accounting(Record):
    """Each event that somebody sent is exactly one of these. `refused` by reason; `counters` are things kept as a number only."""

    joined: int
    late: int
    waiting: int
    refused: tuple[Count, ...]
    counters: tuple[Count, ...]


class ReplicaView(Record):
    replica: str
    version: str
    state: str
    reason: str | None
    load_ms: float | None
    at: Moment


class Point(Record):
    """One version in one stretch of time."""

    at: Moment
    version: str
    requests: int
    reward: float | None
    accept_rate: float | None


class Series(Record):
    bucket_seconds: int
    points: tuple[Point, ...]


class Overview(Record):
    policy: str
    policies: tuple[str, ...]
    at: Moment
    tone: Tone
    now: str
    requests: int
    spec: str
    rollout: RolloutView | None
    versions: tuple[VersionView, ...]
    cycles: tuple[CycleView, ...]
    accounting: Accounting
    replicas: tuple[ReplicaView, ...]
    audit: tuple[AuditView, ...]
    series: Series
