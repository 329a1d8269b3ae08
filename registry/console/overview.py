"""Everything about one policy at one moment, read from the database.

Enters: the policy. Leaves: an `Overview`. Nothing is written, and no text of a person is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime

from contracts.checkpoint import Checkpoint
from contracts.policy import Policy
from contracts.rollout import Rollout
from contracts.states import CheckpointState
from contracts.verdict import GateResult, Verdict
from infra.clock import from_ms
from infra.db.query import Session, col, func, select
from infra.db.tables.ingest import TurnRow
from infra.db.tables.learner import CycleRow
from infra.db.tables.registry import AuditRow, GateRow, RolloutRow, VersionRow
from infra.db.tables.rewarding import RewardRow
from infra.db.tables.serving import ReplicaRow
from registry.console.accounting import read_accounting
from registry.console.figures import Figures, read_figures
from registry.console.sentence import say
from registry.console.views import (
    AuditView,
    CycleView,
    GateView,
    Overview,
    ReplicaView,
    RolloutView,
    StepView,
    VersionView,
)

_VERSIONS = 50
_CYCLES = 12
_AUDIT = 60


def read_overview(session: Session, policy: Policy, policies: Sequence[str], at: datetime) -> Overview:
    figures = read_figures(session, policy.name, policy.reward.id)
    audit = _audit(session, policy.name)
    rollout = _rollout(session, policy, audit)
    versions = _versions(session, policy.name, figures, rollout, audit)
    cycles = _cycles(session, policy.name)
    requests = session.exec(select(func.count()).where(TurnRow.policy == policy.name)).one()
    tone, now = say(rollout, versions, cycles, requests)
    return Overview(
        policy=policy.name,
        policies=tuple(policies),
        at=at,
        tone=tone,
        now=now,
        requests=requests,
        spec=policy.reward.id,
        rollout=rollout,
        versions=versions,
        cycles=cycles,
        accounting=read_accounting(session, policy.name),
        replicas=_replicas(session, policy.name),
        audit=audit,
        series=figures.series,
    )


def _rollout(session: Session, policy: Policy, audit: Sequence[AuditView]) -> RolloutView | None:
    row = session.get(RolloutRow, policy.name)
    if row is None:
        return None
    now = Rollout.decode(row.body)
    last = next((entry.version for entry in audit if entry.before == CheckpointState.CANARY or entry.step is not None), None)
    shown = now.candidate or last
    gates = _gates(session, shown) if shown is not None else ()
    requests, subjects = _exposed(session, now)
    plan = policy.rollout
    reached = now.step if now.candidate is not None and now.step is not None else -1
    return RolloutView(
        revision=now.revision,
        champion=now.champion,
        candidate=now.candidate,
        candidate_state=now.candidate_state,
        step=now.step,
        share=now.share,
        reason=now.reason,
        since=from_ms(row.step_since_ms),
        requests=requests,
        subjects=subjects,
        unsure_means=plan.unsure_means,
        steps=tuple(
            StepView(
                share=step.share,
                stand="done" if number < reached else "now" if number == reached else "ahead",
                min_requests=step.min_requests,
                min_subjects=step.min_subjects,
                min_seconds=step.min_seconds,
                max_seconds=step.max_seconds,
            )
            for number, step in enumerate(plan.steps)
        ),
        gates_of=shown if gates else None,
        gates=gates,
    )


def _gates(session: Session, version: str) -> tuple[GateView, ...]:
    """Those of the newest step that was judged."""
    rows = session.exec(select(GateRow).where(GateRow.version == version)).all()
    newest = max((row.step for row in rows), default=None)
    found = [(row, GateResult.decode(row.body)) for row in rows if row.step == newest]
    return tuple(
        GateView(
            gate=result.gate,
            verdict=Verdict(row.verdict),
            reason=result.reason,
            value=result.value,
            low=result.low,
            high=result.high,
            n=result.n,
            at=from_ms(row.at_ms),
        )
        for row, result in sorted(found, key=lambda pair: pair[1].gate)
    )


def _exposed(session: Session, now: Rollout) -> tuple[int, int]:
    if now.candidate is None or now.step is None:
        return 0, 0
    value = col(RewardRow.value)
    requests, subjects = session.exec(
        select(func.count(value), func.count(func.distinct(RewardRow.subject))).where(
            RewardRow.experiment == now.experiment, RewardRow.step == now.step, RewardRow.arm == "candidate"
        )
    ).one()
    return requests, subjects


def _versions(
    session: Session, policy: str, figures: Figures, rollout: RolloutView | None, audit: Sequence[AuditView]
) -> tuple[VersionView, ...]:
    rows = session.exec(
        select(VersionRow).where(VersionRow.policy == policy).order_by(col(VersionRow.number).desc()).limit(_VERSIONS)
    ).all()
    why: dict[str, str] = {}
    for entry in audit:
        why.setdefault(entry.version, entry.why)
    found = []
    for row in rows:
        checkpoint = Checkpoint.decode(row.body)
        found.append(
            VersionView(
                version=row.version,
                number=row.number,
                state=CheckpointState(row.state),
                since=from_ms(row.since_ms),
                parent=checkpoint.parent,
                samples=checkpoint.sample_count,
                reason=why.get(row.version, ""),
                share=_share(rollout, row.version),
                figures=figures.by_version.get(row.version),
            )
        )
    return tuple(found)


def _share(rollout: RolloutView | None, version: str) -> float:
    if rollout is None or version not in (rollout.candidate, rollout.champion):
        return 0.0
    return rollout.share if version == rollout.candidate else 1.0 - rollout.share


def _cycles(session: Session, policy: str) -> tuple[CycleView, ...]:
    rows = session.exec(
        select(CycleRow).where(CycleRow.policy == policy).order_by(col(CycleRow.started_ms).desc()).limit(_CYCLES)
    ).all()
    return tuple(
        CycleView(
            cycle_id=row.cycle_id,
            state=row.state,
            parent=row.parent,
            version=row.version,
            samples=row.samples,
            reason=row.reason,
            stats=_numbers(row.stats),
            started=from_ms(row.started_ms),
            ended=from_ms(row.ended_ms) if row.ended_ms is not None else None,
        )
        for row in rows
    )


def _numbers(stats: str) -> dict[str, float]:
    """The learner's diagnostics are its own; what is a number can be shown."""
    found = json.loads(stats or "{}")
    pairs = found.items() if isinstance(found, dict) else ()
    return {
        str(name): float(value)
        for name, value in pairs
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _replicas(session: Session, policy: str) -> tuple[ReplicaView, ...]:
    rows = session.exec(
        select(ReplicaRow).where(ReplicaRow.policy == policy).order_by(col(ReplicaRow.at_ms).desc()).limit(20)
    ).all()
    return tuple(
        ReplicaView(
            replica=row.replica,
            version=row.version,
            state=row.state,
            reason=row.reason,
            load_ms=row.load_ms,
            at=from_ms(row.at_ms),
        )
        for row in rows
    )


def _audit(session: Session, policy: str) -> tuple[AuditView, ...]:
    rows = session.exec(
        select(AuditRow).where(AuditRow.policy == policy).order_by(col(AuditRow.audit_id).desc()).limit(_AUDIT)
    ).all()
    return tuple(
        AuditView(
            at=from_ms(row.at_ms),
            version=row.version,
            before=row.before,
            after=row.after,
            step=row.step,
            who=row.who,
            why=row.why,
        )
        for row in rows
    )
