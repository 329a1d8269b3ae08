"""The retention process: Celery's beat and a worker for its jobs, in one.

Enters: the ticks. Leaves: what `sweep` says. A tick that is lost, doubled or late does no harm: the database says what is due.
While Redis is away nothing is asked for and nothing is lost; what is away otherwise is waited for until the next tick.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from contracts.errors import Retry
from infra.clock import system_clock
from infra.db.engine import open_db
from infra.eventlog.open import open_log
from infra.jobs import every, make_jobs, run_worker_and_beat
from infra.people.deletion import places
from infra.people.trace import TOPICS
from infra.policies import load_policies
from infra.settings import Settings, load
from infra.stream import patiently
from ingest.retain.config import RetainConfig
from ingest.retain.sweep import Retention

logger = logging.getLogger(__name__)

_NAME = "retention"
_SWEEP, _FINISH = "retention.sweep", "retention.finish"


def retain(settings: Settings, stop: threading.Event) -> None:
    config = load(RetainConfig)
    policies = load_policies(settings)
    try:
        for attempt in patiently(stop):
            with attempt:
                engine, log = open_db(settings.database), open_log(settings)
                log.ensure(TOPICS)
    except Retry:
        if stop.is_set():
            return
        raise
    retention = Retention(policies.values(), places(settings, engine, log), system_clock, config.batch, stop)
    app = make_jobs(_NAME, settings)
    for task, work, seconds in (
        (_SWEEP, retention.sweep, config.sweep_seconds),
        (_FINISH, retention.finish, config.finish_seconds),
    ):
        app.task(name=task)(_waiting_for(work))
        every(app, seconds, task)
    try:
        _waiting_for(retention.sweep)()  # beat asks only when its time has passed once, which a process may not live to see
        run_worker_and_beat(app, stop)
    finally:
        log.close()


def _waiting_for(work: Callable[[], object]) -> Callable[[], None]:
    def job() -> None:
        try:
            work()
        except Retry as away:
            logger.warning("waiting: %s", away)

    return job
