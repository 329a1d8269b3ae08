"""What happens at every tick of a policy: publish, look, and when a cycle is due, run it under the policy's lease.

Enters: the tick, about once a second, from Celery's beat. Leaves: sealed checkpoints, on their topic and in MLflow. A tick that
is lost, doubled or late does no harm: the database says what is due. What can go wrong: what is away (`Retry`) is tried at a
later tick; a cycle that fails is abandoned, its samples wait again, and the next try comes after a pause that doubles.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from contracts.errors import Fenced, Retry, UnknownName
from contracts.policy import Policy
from contracts.rollout import Rollout
from contracts.topics import CHECKPOINTS
from infra.clock import to_ms
from infra.db import outbox
from infra.db.engine import reading, writing
from infra.db.query import Session
from infra.db.tables.learner import CheckpointRow, VersionNumberRow
from infra.db.tables.registry import RolloutRow
from infra.eventlog.port import EventLog
from infra.policies import base_folder
from learner import base, ledger, seal
from learner.due import STOPPED, TAKEN_OVER, NotDue, look
from learner.hold import Hold, holding
from learner.publish import Publisher
from learner.surroundings import Stopped, Surroundings

logger = logging.getLogger(__name__)


class Learner:
    """All policies of a process; `tick` is the only entry that beat needs."""

    def __init__(self, around: Surroundings, policies: Mapping[str, Policy], log: EventLog, publisher: Publisher) -> None:
        self._around = around
        self._policies = policies
        self._log = log
        self._publisher = publisher
        self._topics_made = False

    @property
    def stop(self) -> threading.Event:
        """Set it, and a running cycle ends at its next step."""
        return self._around.stop

    def tick(self, name: str) -> None:
        policy = self._policies.get(name)
        if policy is None:
            raise UnknownName(f"no policy is called {name!r} here; there are: {', '.join(sorted(self._policies))}")
        try:
            self.bootstrap(policy)
            self.tell()
            self._publisher.nudge()
            self._learn(policy)
        except Fenced as fenced:
            logger.warning("%s: %s", name, fenced)
        except Retry as away:
            logger.warning("%s: waiting: %s", name, away)

    def bootstrap(self, policy: Policy) -> bool:
        """Seal the base weights as version 0 where there is no version yet; False while another process is at it."""
        version = ledger.version_name(policy.name, 0)
        with reading(self._around.engine) as session:
            if session.get(CheckpointRow, version) is not None:
                return True
        write = base.writer(base_folder(policy.model.base), policy.model.base)
        with holding(self._around.engine, policy.name, self._around.clock, self._around.config.lease_seconds) as hold:
            if hold is None:
                return False
            now = self._around.clock()
            checkpoint = seal.seal_folder(self._around.artifacts, policy.name, 0, version, None, write, now)
            with writing(self._around.engine) as session:
                hold.check(session)
                if session.get(CheckpointRow, version) is None:
                    if session.get(VersionNumberRow, policy.name) is None:
                        session.add(VersionNumberRow(policy=policy.name, last=0))
                    ledger.record(session, checkpoint, to_ms(now))
                    logger.info("sealed the base weights of %s as %s", policy.name, version)
        return True

    def bring(self, policy: Policy, folder: Path) -> str:
        """Seal weights made elsewhere as the policy's next version; they have to pass the same gates as any other."""
        write = base.writer(folder, str(folder))
        with writing(self._around.engine) as session:
            number = ledger.next_number(session, policy.name)
            parent = _champion(session, policy.name)
        version = ledger.version_name(policy.name, number)
        now = self._around.clock()
        checkpoint = seal.seal_folder(self._around.artifacts, policy.name, number, version, parent, write, now)
        with writing(self._around.engine) as session:
            ledger.record(session, checkpoint, to_ms(now))
        self.tell()
        return version

    def tell(self) -> None:
        """Put on the topic what was sealed. MLflow hears of it apart from this: one being away does not keep it from the other."""
        try:
            if not self._topics_made:
                self._log.ensure([CHECKPOINTS])
                self._topics_made = True
            outbox.flush(self._around.engine, self._log, ledger.OWNER)
        except Retry as away:
            logger.warning("the topic of checkpoints is told later: %s", away)

    def _learn(self, policy: Policy) -> None:
        now_ms, retry_ms = to_ms(self._around.clock()), self._around.config.retry_seconds * 1000
        with reading(self._around.engine) as session:
            due = look(session, policy, now_ms, retry_ms)
            unfinished = ledger.running(session, policy.name)
        if isinstance(due, NotDue) and not unfinished:
            logger.debug("%s: %s", policy.name, due.why)
            return
        with holding(self._around.engine, policy.name, self._around.clock, self._around.config.lease_seconds) as hold:
            if hold is None:
                return
            with writing(self._around.engine) as session:
                hold.check(session)
                for cycle_id in ledger.abandon(session, policy.name, TAKEN_OVER, now_ms):
                    logger.warning("%s was left unfinished; its samples wait again", cycle_id)
                # Again, now that nobody else can change it and the samples of the dead are back.
                due = look(session, policy, now_ms, retry_ms)
            if isinstance(due, NotDue):
                return
            # Torch is imported on first use: version 0 should not wait for it.
            from learner import cycle

            started = cycle.begin(self._around, policy, due.parent, hold)
            if started is None:
                return
            logger.info("%s: a cycle starts by %s", policy.name, due.why)
            try:
                started.run()
            except Stopped:
                self._abandon(policy, hold, STOPPED)
            except (Fenced, Retry) as outside:
                logger.warning("%s: the cycle is abandoned: %s", policy.name, outside)
                self._abandon(policy, hold, str(outside)[:500])
            except Exception as error:
                logger.exception("%s: the cycle failed", policy.name)
                self._abandon(policy, hold, f"{type(error).__name__}: {error}"[:500])
        self.tell()
        self._publisher.nudge()

    def _abandon(self, policy: Policy, hold: Hold, reason: str) -> None:
        with writing(self._around.engine) as session:
            hold.check(session)
            ledger.abandon(session, policy.name, reason, to_ms(self._around.clock()))


def _champion(session: Session, policy: str) -> str | None:
    row = session.get(RolloutRow, policy)
    return Rollout.decode(row.body).champion if row is not None else None
