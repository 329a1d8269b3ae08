"""One cycle: claim, train, measure, seal. Or stop at the first thing that must not be done.

Enters: a policy whose cycle is due, and its lease. Leaves: a sealed version, or the reason why there is none. Every phase is
announced; a crash between any two of them loses nothing and trains nothing twice, because only `ledger.seal` makes any of it
count. What can go wrong: `Fenced` (another learner took over), `Stopped` (asked to end), `BrokenSeal` (the parent's files
changed); the caller abandons the cycle.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path

import torch

from contracts.checkpoint import Checkpoint
from contracts.errors import Fenced, Retry
from contracts.policy import Policy
from infra.clock import to_ms
from infra.db.engine import reading, writing
from infra.db.query import Engine, select
from infra.db.tables.learner import CheckpointRow
from learner import admit, guard, ledger, optimizer, pack, seal, weights
from learner.advantages import ADVANTAGES
from learner.due import minimum
from learner.guard import StepReport
from learner.hold import Hold
from learner.ledger import Begun
from learner.losses import LOSSES
from learner.plugins import build
from learner.stats import CycleStats, Phase
from learner.surroundings import Stopped, Surroundings
from learner.update import Updater

logger = logging.getLogger(__name__)


class Cycle:
    """A running cycle and what it has to say about itself."""

    def __init__(self, around: Surroundings, policy: Policy, hold: Hold, begun: Begun, stats: CycleStats) -> None:
        self._around = around
        self._policy = policy
        self._hold = hold
        self._begun = begun
        self._started = time.monotonic()
        self._reported = self._started
        self._skipped: Counter[str] = Counter()
        self._trained_tokens = 0
        self.stats = stats

    def run(self) -> str:
        """The version that was sealed, or the reason why none was."""
        torch.set_num_threads(self._around.config.threads)
        self._enter("loading")
        parent = self._begun.parent
        loaded = weights.load(parent, _root(self._around.engine, self._policy.name, parent), self._policy.model)
        updater = Updater(
            loaded.causal,
            build(LOSSES, self._policy.learner.loss, self._policy.name),
            self._policy.learner,
            self._around.config.min_ess,
        )
        resumed = optimizer.resume(self._around.artifacts, self._begun.parent, updater)
        turns = pack.sequences(self._begun.samples, build(ADVANTAGES, self._policy.learner.advantage, self._policy.name))
        self._describe(turns, resumed)
        self._enter("training")
        taken = self._train(updater, turns)
        self._enter("measuring")
        refused = self._refused(updater, turns) if taken else self._commonest()
        if refused is not None:
            return self._skip(refused)
        return self._seal(updater, loaded)

    def _train(self, updater: Updater, turns: list[list[pack.Sequenced]]) -> int:
        learner = self._policy.learner
        per_epoch = -(-len(turns) // learner.minibatch)
        self.stats = self.stats.model_copy(update={"steps": per_epoch * learner.epochs})
        taken = 0
        for epoch in range(learner.epochs):
            seed = self._begun.number * 1000 + epoch
            for batch in pack.minibatches(turns, learner.minibatch, self._around.config.microbatch_tokens, seed):
                self._go_on()
                report = updater.step(batch)
                self._note(report)
                taken += report.refused is None
        return taken

    def _note(self, report: StepReport) -> None:
        if report.refused is not None:
            self._skipped[report.refused] += 1
            logger.warning("%s: a step was not taken: %s", self._begun.version, report.refused)
        self._trained_tokens += report.tokens
        elapsed = time.monotonic() - self._started
        self.stats = (
            self.stats.model_copy(update={"step": self.stats.step + 1, "skipped_steps": dict(self._skipped)})
            .with_drift(report.drift)
            .with_figures(
                loss=report.loss,
                grad_norm=report.grad_norm,
                clip_share=report.clip_share,
                seconds=elapsed,
                tokens_per_s=self._trained_tokens / elapsed,
            )
        )
        if time.monotonic() - self._reported >= self._around.config.progress_seconds:
            self._report()

    def _refused(self, updater: Updater, turns: list[list[pack.Sequenced]]) -> str | None:
        """Measure the finished weights on an even draw of what they learned from."""
        step = max(1, len(turns) // self._around.config.final_samples)
        drawn = [turn for place in range(0, len(turns), step) for turn in turns[place]]
        refused, drift = updater.refuse_weights(pack.minibatch(drawn, self._around.config.microbatch_tokens).parts)
        self.stats = self.stats.with_figures(final_kl=drift.kl_k3)
        return refused

    def _seal(self, updater: Updater, loaded: weights.Weights) -> str:
        around, begun = self._around, self._begun
        self._enter("sealing")
        self._go_on()
        optimizer.keep(around.artifacts, begun, updater, around.config.keep_optimizers)
        final = self._ended("sealed")
        spec = self._policy.reward.id
        checkpoint = seal.seal_cycle(around.artifacts, begun, loaded, spec, final, around.config.float32_megabytes, around.clock())
        around.announce("files")
        with writing(around.engine) as session:
            self._hold.check(session)
            ledger.seal(session, begun, checkpoint, final, to_ms(around.clock()))
            around.announce("committing")
        around.announce("sealed")
        logger.info(
            "sealed %s from %d samples of %s in %.1f s", begun.version, len(begun.samples), begun.parent.version, final.seconds
        )
        return begun.version

    def _skip(self, reason: str) -> str:
        with writing(self._around.engine) as session:
            self._hold.check(session)
            ledger.skip(session, self._begun, reason, self._ended("skipped"), to_ms(self._around.clock()))
        self._around.announce("skipped")
        logger.warning("%s was not sealed: %s", self._begun.version, reason)
        return reason

    def _describe(self, turns: list[list[pack.Sequenced]], resumed: bool) -> None:
        rewards = [sample.reward for sample in self._begun.samples]
        flat = [turn for sample in turns for turn in sample]
        self.stats = self.stats.model_copy(
            update={"tokens": sum(len(turn.behaviour) for turn in flat), "fresh_optimizer": not resumed}
        ).with_figures(
            mean_reward=sum(rewards) / len(rewards),
            no_signal_share=sum(turn.advantage == 0.0 for turn in flat) / max(1, len(flat)),
        )

    def _enter(self, phase: Phase) -> None:
        self._around.announce(phase)
        self.stats = self.stats.model_copy(update={"phase": phase})
        self._report()

    def _ended(self, phase: Phase) -> CycleStats:
        self.stats = self.stats.model_copy(update={"phase": phase}).with_figures(seconds=time.monotonic() - self._started)
        return self.stats

    def _report(self) -> None:
        """Progress may be lost; the cycle may not."""
        self._reported = time.monotonic()
        try:
            with writing(self._around.engine) as session:
                ledger.report(session, self._begun.cycle_id, self.stats)
        except Retry as away:
            logger.warning("progress was not written: %s", away)

    def _go_on(self) -> None:
        if self._around.stop.is_set():
            raise Stopped("asked to stop")
        if self._hold.lost.is_set():
            raise Fenced(f"the lease {self._hold.name!r} was lost")

    def _commonest(self) -> str:
        return self._skipped.most_common(1)[0][0] if self._skipped else guard.NO_STEP


def _root(engine: Engine, policy: str, parent: Checkpoint) -> Checkpoint:
    """The policy's version 0, to which adapters are relative."""
    with reading(engine) as session:
        row = session.get(CheckpointRow, ledger.version_name(policy, 0))
    return Checkpoint.decode(row.body) if row is not None else parent


def begin(around: Surroundings, policy: Policy, parent: Checkpoint, hold: Hold) -> Cycle | None:
    """Look, judge, claim. None when too little of what waits may be trained; what may never be is marked so."""
    learner = policy.learner
    root = _root(around.engine, policy.name, parent)
    readable = weights.readable(Path(parent.uri if parent.kind == "full" else root.uri))
    with reading(around.engine) as session:
        rules = admit.rules(session, policy.name, parent.version, learner.max_lag, readable)
        chosen = admit.select_samples(session, policy.name, rules, learner.max_subject_share, learner.cycle_samples)
        known = set(session.exec(select(CheckpointRow.version).where(CheckpointRow.policy == policy.name)).all())
    seal.sweep(around.artifacts, policy.name, known)
    for reason, count in chosen.reasons().items():
        logger.warning("%s: %d samples will not be trained: %s", policy.name, count, reason)
    with writing(around.engine) as session:
        hold.check(session)
        if len(chosen.samples) < minimum(policy):
            admit.exclude(session, chosen.excluded)
            return None
        begun = ledger.begin(session, parent, chosen, hold.fence, to_ms(around.clock()))
    if begun is None:
        return None
    around.announce("claimed")
    stats = CycleStats(samples=len(begun.samples), by_lag=chosen.by_lag, excluded=chosen.reasons(), held=chosen.held)
    return Cycle(around, policy, hold, begun, stats)
