"""What gates judge by: figures of candidate and champion in one step of one experiment, read from the rewards.

Enters: database rows. Leaves: an immutable `Evidence`. Both arms are read alike: same experiment, step, reward
spec and moment, and their episodes were closed by the same rule, so neither is riper than the other. Steps are never pooled, and
turns that were asked for by version name (`pinned`) belong to no experiment. An arm is whom the split meant, not which version
answered in the end. A request is an episode; one that has no reward counts as a request and is out of the means.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contracts.checkpoint import EvalReport
from infra.db.query import Session, col, func, select
from infra.db.tables.registry import EvalReportRow
from infra.db.tables.rewarding import RewardPartRow, RewardRow
from registry.statistics import Sums

_ARMS = ("candidate", "champion")

Where = Sequence[Any]
"""Conditions on reward rows, in the database's own words."""


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
    """One pass over the step's rewards, and one more for each reward part that a gate asks for."""
    here = (
        RewardRow.experiment == exposure.experiment,
        RewardRow.step == exposure.step,
        RewardRow.policy == exposure.policy,
        RewardRow.spec == exposure.spec,
        col(RewardRow.arm).in_(_ARMS),
    )
    wanted = frozenset(measures)
    value = col(RewardRow.value)
    groups = (RewardRow.arm, RewardRow.subject, RewardRow.finish)
    columns = (*groups, func.count(), func.count(value), func.sum(value), func.sum(value * value))
    gathered = {arm: _Gathered() for arm in _ARMS}
    for arm, subject, finish, n, rewarded, total, squares in session.execute(select(*columns).where(*here).group_by(*groups)):  # type: ignore[call-overload]
        gathered[arm].add(subject, finish, n, rewarded, total, squares)
    sums: dict[str, dict[str, tuple[Sums, ...]]] = {arm: {"reward": gathered[arm].sums()} for arm in _ARMS}
    for measure in sorted(wanted - {"reward", "latency_ms"}):
        for arm, found in _part_sums(session, here, measure).items():
            sums[arm][measure] = found
    latencies = _latencies(session, here) if "latency_ms" in wanted else {}
    arms = {arm: gathered[arm].evidence(latencies.get(arm, ()), sums[arm]) for arm in _ARMS}
    return Evidence(version, share, arms["candidate"], arms["champion"])


@dataclass
class _Gathered:
    """What the rows of one arm add up to."""

    finishes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    subjects: dict[str, Sums] = field(default_factory=dict)

    def add(self, subject: str, finish: str, n: int, rewarded: int, total: float | None, squares: float | None) -> None:
        self.finishes[finish] += n
        before = self.subjects.get(subject, Sums(0, 0.0, 0.0))
        self.subjects[subject] = Sums(before.n + rewarded, before.total + (total or 0.0), before.squares + (squares or 0.0))

    def sums(self) -> tuple[Sums, ...]:
        return tuple(one for one in self.subjects.values() if one.n)

    def evidence(self, latencies: Sequence[float], sums: Mapping[str, tuple[Sums, ...]]) -> ArmEvidence:
        return ArmEvidence(
            requests=sum(self.finishes.values()),
            subjects=len(self.subjects),
            rewarded=sum(one.n for one in self.subjects.values()),
            finishes=dict(self.finishes),
            latencies=tuple(sorted(latencies)),
            sums=sums,
        )


def _part_sums(session: Session, here: Where, name: str) -> dict[str, tuple[Sums, ...]]:
    value = col(RewardPartRow.value)
    of_reward = (col(RewardPartRow.episode_id) == col(RewardRow.episode_id)) & (col(RewardPartRow.spec) == col(RewardRow.spec))
    columns = (RewardRow.arm, RewardRow.subject, func.count(value), func.sum(value), func.sum(value * value))
    rows = session.execute(
        select(*columns)  # type: ignore[call-overload]
        .join(RewardPartRow, of_reward)
        .where(*here, RewardPartRow.name == name)
        .group_by(RewardRow.arm, RewardRow.subject)
    )
    found: dict[str, list[Sums]] = {arm: [] for arm in _ARMS}
    for arm, _, n, total, squares in rows:
        if n:
            found[arm].append(Sums(n, total, squares))
    return {arm: tuple(sums) for arm, sums in found.items()}


def _latencies(session: Session, here: Where) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {arm: [] for arm in _ARMS}
    for arm, latency_ms in session.exec(select(RewardRow.arm, RewardRow.latency_ms).where(*here)):
        if latency_ms is not None:
            found[arm].append(latency_ms)
    return found
