"""A registry without its neighbours: a real database into which a test writes what learner, gateways, bench and rewarding would."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from contracts.checkpoint import Checkpoint, EvalReport, Metric, SealedFile
from contracts.policy import Policy
from contracts.rollout import Rollout
from infra.clock import to_ms
from infra.db.engine import open_db, reading, writing
from infra.db.query import col, select
from infra.db.tables.registry import AuditRow, GateRow, RolloutRow, VersionRow
from infra.db.tables.rewarding import RewardPartRow, RewardRow, SampleRow
from infra.db.tables.serving import ReplicaRow
from registry.config import RegistryConfig
from registry.evidence import ArmEvidence, Evidence
from registry.ledger import enter, keep_report
from registry.rollouts import PolicyRollout
from registry.statistics import Sums


def make_checkpoint(number: int, policy: str = "tab", **changes: Any) -> Checkpoint:
    fields: dict[str, Any] = {
        "version": f"{policy}-v{number:04d}",
        "policy": policy,
        "number": number,
        "parent": f"{policy}-v{number - 1:04d}" if number else None,
        "kind": "full",
        "uri": "/nowhere",
        "files": (SealedFile(name="model.safetensors", sha256="0" * 64, size=1),),
        "samples": None,
        "sample_count": 0,
        "spec": None,
        "cycle_id": None,
        "metrics": {},
        "created_at": "2026-01-01T00:00:00Z",
    }
    return Checkpoint(**{**fields, **changes})


def make_report(version: str, policy: str = "tab", error: str | None = None, **metrics: float | None) -> EvalReport:
    found = {"answered": 1.0, "finite": 1.0, "silent": 0.2} | metrics
    return EvalReport(
        version=version,
        policy=policy,
        suite="smoke",
        metrics=tuple(Metric(name=name, value=value, n=64) for name, value in found.items()),
        error=error,
        created_at="2026-01-01T00:00:00Z",
    )


class World:
    """One policy with its controller; several worlds may share a database."""

    def __init__(self, url: str, policy: Policy, hands: Any, holder: str = "one") -> None:
        self.engine = open_db(url)
        self.url = url
        self.policy = policy
        self.hands = hands
        self.rollout = PolicyRollout(self.engine, policy, RegistryConfig(), None, hands, holder)
        self.random = random.Random(7)
        self._episodes = 0

    def seal(self, number: int) -> str:
        checkpoint = make_checkpoint(number, self.policy.name)
        with writing(self.engine) as session:
            enter(session, checkpoint, to_ms(self.hands()))
        return checkpoint.version

    def replica(self, version: str, state: str = "ready", reason: str | None = None) -> None:
        row = ReplicaRow(
            replica="gateway-1", version=version, policy=self.policy.name, state=state, reason=reason, load_ms=None, at_ms=0
        )
        with writing(self.engine) as session:
            session.merge(row)

    def report(self, version: str, **found: Any) -> None:
        with writing(self.engine) as session:
            keep_report(session, make_report(version, self.policy.name, **found))

    def traffic(self, n: int, accept: dict[str, float], finish: dict[str, str] | None = None, **changes: Any) -> None:
        """n episodes of 100 subjects, split as the routing says, each accepted with its arm's probability."""
        now = self.routing()
        assert now is not None
        rows, parts = [], []
        for _ in range(n):
            self._episodes += 1
            subject = self.random.randrange(100)
            arm = "candidate" if subject < 100 * now.share else "champion"
            taken = self.random.random() < accept[arm]
            fields: dict[str, Any] = {
                "episode_id": f"{self.policy.name}-ep-{self._episodes}",
                "spec": self.policy.reward.id,
                "revision": 1,
                "policy": self.policy.name,
                "version": now.candidate if arm == "candidate" else now.champion,
                "arm": arm,
                "experiment": now.experiment,
                "step": now.step,
                "subject": f"subject-{subject}",
                "finish": (finish or {}).get(arm, "stop"),
                "latency_ms": 10.0,
                "value": 0.75 if taken else -0.25,
                "closed_ms": to_ms(self.hands()),
                "body": "{}",
            }
            rows.append(fields | changes)
            keys = {"episode_id": fields["episode_id"], "spec": (fields | changes)["spec"], "weight": 0.0}
            for name, value in (("accepted", float(taken)), ("shown", 1.0), ("accepted_characters", 9.0 * taken)):
                parts.append(keys | {"name": name, "value": value})
        with writing(self.engine) as session:
            session.execute(insert(RewardRow), rows)
            session.execute(insert(RewardPartRow), parts)

    def sample(self, sample_id: str, version: str, state: str = "ready") -> None:
        row = SampleRow(
            sample_id=sample_id,
            policy=self.policy.name,
            revision=1,
            state=state,
            reason=None,
            cycle_id=None,
            lag_version=version,
            subject="subject-1",
            reward=0.0,
            sampled_ms=0,
            body="{}",
        )
        with writing(self.engine) as session:
            session.add(row)

    def tick(self, times: int = 1, seconds: float = 0.3) -> None:
        for _ in range(times):
            self.rollout.tick()
            self.hands.forward(seconds)

    def to_canary(self, number: int = 1) -> str:
        """Bootstrap version 0 and bring a candidate to the first step."""
        self.seal(0)
        version = self.seal(number)
        self.tick(2)
        self.replica(version)
        self.report(version)
        self.tick()
        assert self.state(version) == "canary"
        return version

    def routing(self) -> Rollout | None:
        with reading(self.engine) as session:
            row = session.get(RolloutRow, self.policy.name)
        return Rollout.decode(row.body) if row is not None else None

    def state(self, version: str) -> str:
        with reading(self.engine) as session:
            row = session.get(VersionRow, version)
        assert row is not None
        return row.state

    def audit(self, version: str) -> list[tuple[str | None, str, str]]:
        with reading(self.engine) as session:
            rows = session.exec(select(AuditRow).where(AuditRow.version == version).order_by(col(AuditRow.audit_id))).all()
        return [(row.before, row.after, row.why) for row in rows]

    def gates(self, version: str) -> dict[tuple[int, str], str]:
        with reading(self.engine) as session:
            rows = session.exec(select(GateRow).where(GateRow.version == version)).all()
        return {(row.step, row.gate): row.verdict for row in rows}

    def samples(self) -> dict[str, tuple[str, str | None]]:
        with reading(self.engine) as session:
            rows = session.exec(select(SampleRow)).all()
        return {row.sample_id: (row.state, row.reason) for row in rows}


@pytest.fixture
def world(tmp_path: Path, tab_policy: Policy, hands: Any) -> World:
    return World(f"sqlite:///{tmp_path / 'registry.db'}", tab_policy, hands)


@pytest.fixture
def world_of(tmp_path: Path, hands: Any) -> Callable[..., World]:
    """More controllers over the same database and clock."""

    def make(policy: Policy, holder: str) -> World:
        return World(f"sqlite:///{tmp_path / 'registry.db'}", policy, hands, holder)

    return make


@pytest.fixture
def checkpoint_of() -> Callable[..., Checkpoint]:
    return make_checkpoint


@pytest.fixture
def report_of() -> Callable[..., EvalReport]:
    return make_report


@pytest.fixture
def evidence_of() -> Callable[..., Evidence]:
    """Evidence of two arms of so many requests, each subject with ten, accepted with the given probabilities."""

    def arm(requests: int, accept: float, seed: int, **changes: Any) -> ArmEvidence:
        chance = random.Random(seed)
        values = [0.75 if chance.random() < accept else -0.25 for _ in range(requests)]
        people = [values[at : at + 10] for at in range(0, requests, 10)]
        sums = tuple(Sums(len(one), sum(one), sum(value * value for value in one)) for one in people)
        fields: dict[str, Any] = {"requests": requests, "subjects": len(people), "rewarded": requests, "sums": {"reward": sums}}
        return ArmEvidence(**{**fields, **changes})

    def make(
        candidate: int = 0,
        champion: int = 0,
        accept: tuple[float, float] = (0.3, 0.3),
        share: float = 0.1,
        candidate_has: dict[str, Any] | None = None,
        champion_has: dict[str, Any] | None = None,
        **rest: Any,
    ) -> Evidence:
        one = arm(candidate, accept[0], 1, **(candidate_has or {}))
        two = arm(champion, accept[1], 2, **(champion_has or {}))
        return Evidence("tab-v0001", share, one, two, **rest)

    return make
