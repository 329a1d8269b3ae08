"""One policy's rollout, judged and moved a step at a time.

Enters: the ledger, the evidence, the time. Leaves: at most one move per call, under a lease, in one transaction with its audit row,
its verdicts and the promise to publish; then the routing goes to the cache. What can go wrong: `Fenced` or `LostRace` when another
controller went on (nothing was written; the next call reads again), `Retry` when the database is away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from contracts.errors import Fenced
from contracts.policy import Policy
from contracts.rollout import Rollout
from contracts.states import CheckpointState
from contracts.verdict import GateResult
from infra.cache import RoutingCache
from infra.clock import Clock, to_ms
from infra.db import lease
from infra.db.engine import reading, writing
from infra.db.query import Engine, Session, col, func, select
from infra.db.tables.rewarding import SampleRow
from infra.db.tables.serving import ReplicaRow
from registry import transitions
from registry.config import RegistryConfig
from registry.controller import Action, Counts, Decision, Loading, decide_bench, decide_step
from registry.evidence import Evidence, Exposure, read_bench, read_step
from registry.gate import Panel
from registry.ledger import BENCH_STEP, Standing, Why, evidence_json, keep_gates, quarantine, standing, thrown_out

logger = logging.getLogger(__name__)

_CONTROLLER = "controller"
_LATE_SAMPLES_MS = 24 * 3_600_000

Move = Callable[[Session], Rollout]


class PolicyRollout:
    """Not thread-safe: one thread calls `tick`. Several processes may each have one; the lease lets one of them act."""

    def __init__(
        self, engine: Engine, policy: Policy, config: RegistryConfig, cache: RoutingCache | None, clock: Clock, holder: str
    ) -> None:
        self.owner = f"registry:{policy.name}"
        self._engine = engine
        self._policy = policy
        self._plan = policy.rollout
        self._config = config
        self._cache = cache
        self._clock = clock
        self._holder = holder
        self._bench = Panel(policy.rollout.name, policy.rollout.bench_gates)
        self._ramp = Panel(policy.rollout.name, policy.rollout.gates)
        self._fence = 0
        self._renew_ms = self._gates_ms = self._cache_ms = self._sweep_ms = 0

    def tick(self) -> Rollout | None:
        """Judge, and move if there is reason to; answers the new routing when it changed."""
        now_ms = to_ms(self._clock())
        if not self._hold(now_ms):
            return None
        try:
            return self._tick(now_ms)
        except Fenced:
            self._fence = 0
            raise

    def _tick(self, now_ms: int) -> Rollout | None:
        with reading(self._engine) as session:
            here = standing(session, self._policy.name)
        moved = self._advance(here, now_ms)
        current = moved or here.rollout
        if current is not None and (moved is not None or self._due("_cache_ms", self._config.cache_seconds, now_ms)):
            self._put(current)
        if self._due("_sweep_ms", self._config.sweep_seconds, now_ms):
            self._sweep(now_ms)
        return moved

    def let_go(self) -> None:
        """Give the lease back, so that the next controller need not wait for it to expire."""
        if self._fence:
            with writing(self._engine) as session:
                lease.release(session, self.owner, self._fence)
            self._fence = 0

    def _advance(self, here: Standing, now_ms: int) -> Rollout | None:
        now = here.rollout
        if now is None:
            first = next((row for row in here.queue if row.number == 0), None)
            if first is None:
                return None
            why = Why(_CONTROLLER, "bootstrap", now_ms)
            return self._commit(lambda session: transitions.bootstrap(session, first, why, self.owner))
        if here.candidate is None:
            if not here.queue:
                return None
            next_up, why = here.queue[0], Why(_CONTROLLER, "next in the queue", now_ms)
            return self._commit(lambda session: transitions.begin_bench(session, now, next_up, why, self.owner))
        if here.candidate.state == CheckpointState.BENCH:
            return self._on_bench(now, here, now_ms)
        return self._on_canary(now, here, now_ms)

    def _on_bench(self, now: Rollout, here: Standing, now_ms: int) -> Rollout | None:
        version = str(now.candidate)
        with reading(self._engine) as session:
            evidence, loading = read_bench(session, version), _loading(session, self._policy.name, version)
        results = self._bench.judge(evidence)
        elapsed_s = _seconds(here.step_since_ms, now_ms)
        decision = decide_bench(self._plan, loading, results, elapsed_s)
        audit = evidence_json(results, ready=loading.ready, failure=loading.failure, seconds=elapsed_s)
        return self._act(now, decision, results, BENCH_STEP, Why(_CONTROLLER, decision.reason, now_ms, None, audit))

    def _on_canary(self, now: Rollout, here: Standing, now_ms: int) -> Rollout | None:
        version, step = str(now.candidate), int(now.step or 0)
        exposure = Exposure(now.policy, self._policy.reward.id, str(now.experiment), step)
        with reading(self._engine) as session:
            evidence = read_step(session, version, now.share, exposure, self._ramp.measures)
        results = self._ramp.judge(evidence)
        elapsed_s = _seconds(here.step_since_ms, now_ms)
        # The file may have lost steps since this one began; the last one it has then stands for it.
        known = min(step, len(self._plan.steps) - 1)
        counts = Counts(evidence.candidate.rewarded, evidence.candidate.subjects)
        decision = decide_step(self._plan, known, results, counts, elapsed_s)
        audit = evidence_json(results, seconds=elapsed_s, **_figures(evidence))
        return self._act(now, decision, results, step, Why(_CONTROLLER, decision.reason, now_ms, step, audit))

    def _act(self, now: Rollout, decision: Decision, results: Sequence[GateResult], step: int, why: Why) -> Rollout | None:
        if decision.action is Action.HOLD:
            if results and self._due("_gates_ms", self._config.gates_seconds, why.at_ms):
                with writing(self._engine) as session:
                    lease.check(session, self.owner, self._fence)
                    keep_gates(session, now.policy, str(now.candidate), step, results, why.at_ms)
            return None

        def carry_out(session: Session) -> Rollout:
            keep_gates(session, now.policy, str(now.candidate), step, results, why.at_ms)
            match decision.action:
                case Action.ADVANCE:
                    return transitions.begin_step(session, now, self._plan, step + 1, why, self.owner)
                case Action.PROMOTE:
                    return transitions.promote(session, now, why, self.owner)
                case _:
                    return transitions.throw_out(session, now, CheckpointState(str(now.candidate_state)), why, self.owner)

        return self._commit(carry_out)

    def _commit(self, carry_out: Move) -> Rollout:
        with writing(self._engine) as session:
            lease.check(session, self.owner, self._fence)
            moved = carry_out(session)
        logger.info(
            "%s: champion %s, candidate %s at %.0f%%: %s",
            moved.policy,
            moved.champion,
            moved.candidate,
            100 * moved.share,
            moved.reason,
        )
        return moved

    def _hold(self, now_ms: int) -> bool:
        """Have the lease, renewing it when a third of it is gone."""
        ttl_ms = int(self._config.lease_seconds * 1000)
        if self._fence and now_ms < self._renew_ms:
            return True
        with writing(self._engine) as session:
            self._fence = lease.acquire(session, self.owner, self._holder, now_ms, ttl_ms) or 0
        self._renew_ms = now_ms + ttl_ms // 3
        return bool(self._fence)

    def _put(self, rollout: Rollout) -> None:
        if self._cache is not None:
            self._cache.put(rollout)

    def _sweep(self, now_ms: int) -> None:
        """Episodes of a thrown-out version go on closing for a while; what they bring is not learned from either."""
        with reading(self._engine) as session:
            bad = thrown_out(session, self._policy.name, now_ms - _LATE_SAMPLES_MS)
            versions = [version for some in bad.values() for version in some]
            late = select(func.count()).where(
                SampleRow.policy == self._policy.name, SampleRow.state == "ready", col(SampleRow.lag_version).in_(versions)
            )
            if not versions or not session.exec(late).one():
                return
        with writing(self._engine) as session:
            for reason, some in bad.items():
                quarantine(session, self._policy.name, some, reason)

    def _due(self, what: str, every_s: float, now_ms: int) -> bool:
        if now_ms < getattr(self, what):
            return False
        setattr(self, what, now_ms + int(every_s * 1000))
        return True


def _loading(session: Session, policy: str, version: str) -> Loading:
    rows = session.exec(select(ReplicaRow).where(ReplicaRow.policy == policy, ReplicaRow.version == version)).all()
    failures = sorted((row.at_ms, row.replica, row.reason) for row in rows if row.state == "failed")
    failure = f"{failures[0][2] or 'no reason given'} ({failures[0][1]})" if failures else None
    return Loading(sum(row.state == "ready" for row in rows), failure)


def _seconds(since_ms: int, now_ms: int) -> float:
    return max(0, now_ms - since_ms) / 1000


def _figures(evidence: Evidence) -> dict[str, float]:
    return {
        f"{arm}_{what}": count
        for arm, figures in (("candidate", evidence.candidate), ("champion", evidence.champion))
        for what, count in (("requests", figures.requests), ("rewarded", figures.rewarded), ("subjects", figures.subjects))
    }
