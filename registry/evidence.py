"""What gates judge by: figures of candidate and champion in one step of one experiment, read from the rewards.

Enters: database rows. Leaves: an immutable `Evidence`. Both arms are read alike: same experiment, step, reward
spec and moment, and their episodes were closed by the same rule, so neither is riper than the other. Steps are never pooled, and
turns that were asked for by version name (`pinned`) belong to no experiment. An arm is whom the split meant, not which version
answered in the end. A request is an episode; one that has no reward counts as a request and is out of the means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from contracts.checkpoint import EvalReport
from infra.db.query import Session, col, func, select
from infra.db.tables.registry import EvalReportRow
from infra.db.tables.rewarding import RewardPartRow, RewardRow
from registry.statistics import Sums

_ARMS = ("candidate", "champion")


@dataclass(frozen=True)
class ArmEvidence:
    """`requests` and `subjects` with or without a reward; `rewarded` and `sums` with one. `latencies` are sorted milliseconds."""

    requests: int = 0
    subjects: int = 0
    rewarded: int = 0
    finishes: Mapping[str, int] = field(default_factory=dict)
    latencies: tuple[float, ...] = ()
    sums: Mapping[str, tuple[Sums, ...]] = field(default_factory=dict)

    def finished(self, how: str) -> int:
        return self.finishes.get(how, 0)

    def latency(self, quantile: float) -> float | None:
        if not self.latencies:
            return None
        return self.latencies[min(len(self.latencies) - 1, int(quantile * len(self.latencies)))]


@dataclass(frozen=True)
class Evidence:
    """`share` is what the split promised the candidate; 0 before traffic."""

    version: str
    share: float = 0.0
    candidate: ArmEvidence = ArmEvidence()
    champion: ArmEvidence = ArmEvidence()
    reports: Mapping[str, EvalReport] = field(default_factory=dict)


@dataclass(frozen=True)
class Exposure:
    """Which rewards are meant: those of one step of one experiment, under one spec."""

    policy: str
    spec: str
    experiment: str
    step: int


def read_bench(session: Session, version: str) -> Evidence:
    rows = session.exec(select(EvalReportRow).where(EvalReportRow.version == version)).all()
    return Evidence(version, reports={row.suite: EvalReport.decode(row.body) for row in rows})


def read_step(session: Session, version: str, share: float, exposure: Exposure, measures: Iterable[str]) -> Evidence:
    wanted = frozenset(measures)
    arms = {arm: _read_arm(session, exposure, arm, wanted) for arm in _ARMS}
    return Evidence(version, share, arms["candidate"], arms["champion"])


def _read_arm(session: Session, exposure: Exposure, arm: str, measures: frozenset[str]) -> ArmEvidence:
    here = (
        RewardRow.experiment == exposure.experiment,
        RewardRow.step == exposure.step,
        RewardRow.policy == exposure.policy,
        RewardRow.spec == exposure.spec,
        RewardRow.arm == arm,
    )
    value = col(RewardRow.value)
    columns = (RewardRow.subject, func.count(), func.count(value), func.sum(value), func.sum(value * value))
    by_subject = session.execute(select(*columns).where(*here).group_by(RewardRow.subject)).all()  # type: ignore[call-overload]
    finishes = session.exec(select(RewardRow.finish, func.count()).where(*here).group_by(RewardRow.finish)).all()
    latencies: list[float] = []
    if "latency_ms" in measures:
        latencies = sorted(session.exec(select(RewardRow.latency_ms).where(*here)).all())
    sums = {"reward": tuple(Sums(n, total, squares) for _, _, n, total, squares in by_subject if n)}
    for measure in sorted(measures - {"reward", "latency_ms"}):
        sums[measure] = _part_sums(session, here, measure)
    return ArmEvidence(
        requests=sum(row[1] for row in by_subject),
        subjects=len(by_subject),
        rewarded=sum(row[2] for row in by_subject),
        finishes=dict(finishes),
        latencies=tuple(latencies),
        sums=sums,
    )


def _part_sums(session: Session, here: tuple[bool, ...], name: str) -> tuple[Sums, ...]:
    value = col(RewardPartRow.value)
    rows = session.execute(
        select(RewardRow.subject, func.count(value), func.sum(value), func.sum(value * value))
        .join(
            RewardPartRow,
            (col(RewardPartRow.episode_id) == col(RewardRow.episode_id)) & (col(RewardPartRow.spec) == col(RewardRow.spec)),
        )
        .where(*here, RewardPartRow.name == name)
        .group_by(RewardRow.subject)
    ).all()
    return tuple(Sums(n, total, squares) for _, n, total, squares in rows if n)
