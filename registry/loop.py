"""The registry process: the ledger's intake, a controller per policy, MLflow's mirror, and the console, each in its own thread.

Enters: checkpoints and evaluations from their topics. Leaves: rollouts. A thread that crashes stops the process, which the
supervisor starts again; only the mirror may fail for good without harm.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial

from contracts.checkpoint import Checkpoint, EvalReport
from contracts.errors import Fenced, Retry
from contracts.topics import CHECKPOINTS, EVALUATIONS, ROLLOUTS
from infra.cache import RoutingCache
from infra.clock import system_clock, to_ms
from infra.db import outbox
from infra.db.engine import open_db
from infra.db.query import Engine, Session
from infra.eventlog.open import open_log
from infra.eventlog.port import EventLog
from infra.http import bind, serve
from infra.policies import load_policies
from infra.settings import Settings, load
from infra.stream import Delivery, Stream, patiently
from infra.tracking import Tracking
from registry import mirror
from registry.config import RegistryConfig
from registry.console.app import make_console
from registry.ledger import LostRace, enter, keep_report
from registry.rollouts import PolicyRollout

logger = logging.getLogger(__name__)

GROUP = "registry"
_PATIENCE_S = 5.0


def keep(settings: Settings, stop: threading.Event) -> None:
    config = load(RegistryConfig)
    policies = load_policies(settings)
    engine, log = open_db(settings.database), open_log(settings)
    holder = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    cache = RoutingCache(settings)
    rollouts = [PolicyRollout(engine, policy, config, cache, system_clock, holder) for policy in policies.values()]
    listener = bind(settings.host, settings.console_port, "the console")
    log.ensure([CHECKPOINTS, EVALUATIONS, ROLLOUTS])
    crew = _Crew(stop)
    crew.start("intake", lambda: Stream(engine, log, GROUP, (CHECKPOINTS, EVALUATIONS), intake).run(stop))
    for rollout in rollouts:
        crew.start(rollout.owner, partial(control, rollout, engine, log, stop, config.tick_seconds))
    crew.start("mirror", lambda: mirror.run(engine, Tracking(settings), stop, config.mirror_seconds))
    try:
        serve(make_console(engine, policies, config.console_seconds), listener, stop)
    finally:
        stop.set()
        crew.join()
        log.close()


def intake(session: Session, deliveries: Sequence[Delivery]) -> None:
    """Checkpoints become versions, evaluations become reports. Repeated, nothing changes."""
    now_ms = to_ms(system_clock())
    for delivery in deliveries:
        match delivery.record:
            case Checkpoint() as checkpoint:
                enter(session, checkpoint, now_ms)
            case EvalReport() as report:
                keep_report(session, report)


def control(rollout: PolicyRollout, engine: Engine, log: EventLog, stop: threading.Event, every_s: float) -> None:
    """Judge, move and publish until told to stop."""
    try:
        while not stop.is_set():
            for attempt in patiently(stop):
                with attempt:
                    _tick(rollout)
                    outbox.flush(engine, log, rollout.owner)
            stop.wait(every_s)
    except Retry:
        if not stop.is_set():
            raise
    finally:
        try:
            rollout.let_go()
        except Retry as retry:
            logger.warning("the lease of %s runs out by itself: %s", rollout.owner, retry)


def _tick(rollout: PolicyRollout) -> None:
    try:
        rollout.tick()
    except (Fenced, LostRace) as lost:
        logger.warning("%s: %s", rollout.owner, lost)


class _Crew:
    """Threads of which none may die alone: the first failure sets `stop` and is raised by `join`.

    They are daemons: one that hangs in an outside system (MLflow retries for minutes) does not keep the process from ending.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def start(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        due = time.monotonic() + _PATIENCE_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, due - time.monotonic()))
        if self._failures:
            raise self._failures[0]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:
            self._failures.append(failure)
            self._stop.set()
