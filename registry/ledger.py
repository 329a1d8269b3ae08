"""The ledger: where each version stands, who moved it, why, and which version has which share of traffic.

Enters: a session and what should change. Leaves: rows that change together or not at all: the version's state by compare-and-set,
an audit row, the routing with revision + 1, the promise to publish it, the quarantine of a thrown-out version's samples.
What can go wrong: `LostRace` when somebody else moved the version first, `IllegalMove` when the table has no such step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from contracts.checkpoint import Checkpoint, EvalReport
from contracts.errors import SlipstreamError
from contracts.rollout import Rollout
from contracts.states import CHECKPOINT_NEXT, SAMPLE_NEXT, CheckpointState, SampleState, move
from contracts.topics import ROLLOUTS
from contracts.verdict import GateResult
from infra.clock import to_ms
from infra.db import outbox
from infra.db.insert import insert_new, upsert
from infra.db.query import Session, col, select, update
from infra.db.tables.registry import AuditRow, EvalReportRow, GateRow, RolloutRow, VersionRow
from infra.db.tables.rewarding import SampleRow

BENCH_STEP = -1
"""The step under which results before traffic are kept."""

_THROWN_OUT = (CheckpointState.REJECTED, CheckpointState.ROLLED_BACK)


class LostRace(SlipstreamError):
    """The version or the routing was moved by somebody else since it was read; look again."""


@dataclass(frozen=True)
class Why:
    """Who moves, for which reason, on which evidence (JSON), in which step."""

    who: str
    reason: str
    at_ms: int
    step: int | None = None
    evidence: str = "{}"


@dataclass(frozen=True)
class Standing:
    """A policy's routing, the state of its candidate, when the present step began, and who waits, oldest first."""

    rollout: Rollout | None
    step_since_ms: int
    candidate: VersionRow | None
    queue: tuple[VersionRow, ...]


def enter(session: Session, checkpoint: Checkpoint, now_ms: int) -> bool:
    """Take a sealed checkpoint in; repeated, nothing happens. Answers whether it was new."""
    row = VersionRow(
        version=checkpoint.version,
        policy=checkpoint.policy,
        number=checkpoint.number,
        state=CheckpointState.SEALED,
        since_ms=now_ms,
        mirrored_state=None,
        body=checkpoint.model_dump_json(),
    )
    if not insert_new(session, VersionRow, [row]):
        return False
    why = Why("learner", "sealed", now_ms)
    session.add(_audit(row.policy, row.version, None, CheckpointState.SEALED, why))
    return True


def keep_report(session: Session, report: EvalReport) -> None:
    """The newest report of a suite about a version replaces the one before."""
    row = EvalReportRow(
        version=report.version,
        suite=report.suite,
        policy=report.policy,
        at_ms=to_ms(report.created_at),
        body=report.model_dump_json(),
    )
    upsert(session, EvalReportRow, [row], ("policy", "at_ms", "body"))


def standing(session: Session, policy: str) -> Standing:
    row = session.get(RolloutRow, policy)
    rollout = Rollout.decode(row.body) if row is not None else None
    candidate = session.get(VersionRow, rollout.candidate) if rollout is not None and rollout.candidate is not None else None
    queue = session.exec(
        select(VersionRow)
        .where(VersionRow.policy == policy, VersionRow.state == CheckpointState.SEALED)
        .order_by(col(VersionRow.number))
        .limit(20)
    ).all()
    return Standing(rollout, row.step_since_ms if row is not None else 0, candidate, tuple(queue))


def move_version(session: Session, policy: str, version: str, before: CheckpointState, to: CheckpointState, why: Why) -> None:
    """Compare-and-set on the state, with its audit row. A version thrown out takes its unlearned samples with it."""
    move(CHECKPOINT_NEXT, before, to)
    moved = session.execute(
        update(VersionRow)
        .where(col(VersionRow.version) == version, col(VersionRow.policy) == policy, col(VersionRow.state) == before)
        .values(state=to, since_ms=why.at_ms)
    )
    if moved.rowcount != 1:  # type: ignore[attr-defined]
        raise LostRace(f"{version} is not {before} any more")
    session.add(_audit(policy, version, before, to, why))
    if to in _THROWN_OUT:
        quarantine(session, policy, (version,), to)


def note(session: Session, policy: str, version: str, state: CheckpointState, why: Why) -> None:
    """An audit row for what changes the routing and not the state: a further step."""
    session.add(_audit(policy, version, state, state, why))


def quarantine(session: Session, policy: str, versions: Sequence[str], reason: str) -> int:
    """Samples that wait to be learned from and were sampled by these versions are out. Answers how many."""
    move(SAMPLE_NEXT, SampleState.READY, SampleState.QUARANTINED)
    changed = session.execute(
        update(SampleRow)
        .where(
            col(SampleRow.policy) == policy,
            col(SampleRow.state) == SampleState.READY,
            col(SampleRow.lag_version).in_(versions),
        )
        .values(state=SampleState.QUARANTINED, reason=reason)
    )
    return int(changed.rowcount)  # type: ignore[attr-defined]


def route(session: Session, rollout: Rollout, owner: str) -> None:
    """Put a routing in the place of the one before it, whose revision is one less, and promise to publish it."""
    row = session.get(RolloutRow, rollout.policy, with_for_update=True)
    found = row.revision if row is not None else 0
    if found != rollout.revision - 1:
        raise LostRace(f"the routing of {rollout.policy} is at revision {found}, not at {rollout.revision - 1}")
    at_ms = to_ms(rollout.at)
    if row is None:
        row = RolloutRow(policy=rollout.policy, revision=0, step_since_ms=at_ms, body="")
    row.revision, row.step_since_ms, row.body = rollout.revision, at_ms, rollout.model_dump_json()
    session.add(row)
    outbox.post(session, owner, ROLLOUTS, rollout)


def keep_gates(session: Session, policy: str, version: str, step: int, results: Sequence[GateResult], now_ms: int) -> None:
    rows = [
        GateRow(
            version=version,
            step=step,
            gate=result.gate,
            policy=policy,
            verdict=result.verdict,
            at_ms=now_ms,
            body=result.model_dump_json(),
        )
        for result in results
    ]
    upsert(session, GateRow, rows, ("policy", "verdict", "at_ms", "body"))


def thrown_out(session: Session, policy: str, since_ms: int) -> dict[str, list[str]]:
    """Versions thrown out since a moment, by state: their samples may still be arriving."""
    rows = session.exec(
        select(VersionRow.state, VersionRow.version).where(
            VersionRow.policy == policy, col(VersionRow.state).in_(_THROWN_OUT), VersionRow.since_ms >= since_ms
        )
    ).all()
    found: dict[str, list[str]] = {}
    for state, version in rows:
        found.setdefault(state, []).append(version)
    return found


def evidence_json(results: Sequence[GateResult], **figures: float | str | None) -> str:
    """What an audit row keeps: the verdicts and the figures a decision was made on."""
    return json.dumps({**figures, "gates": [result.model_dump(mode="json") for result in results]}, allow_nan=False)


def _audit(policy: str, version: str, before: str | None, after: str, why: Why) -> AuditRow:
    return AuditRow(
        policy=policy,
        version=version,
        before=before,
        after=after,
        step=why.step,
        who=why.who,
        why=why.reason,
        evidence=why.evidence,
        at_ms=why.at_ms,
    )
