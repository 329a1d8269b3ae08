"""Celery: who runs jobs, and when. Redis carries the queue; truth stays in SQL, so a lost or doubled job does no harm.

Enters: settings. Leaves: a Celery application. A beat job that nobody took before the next one is due expires.
"""

from __future__ import annotations

import threading

from celery import Celery
from celery.beat import EmbeddedService
from celery.signals import setup_logging, worker_shutting_down

from infra.cache import redis_url
from infra.settings import Settings


@setup_logging.connect  # type: ignore[untyped-decorator]
def _keep_our_logs(**_: object) -> None:
    """A receiver here keeps Celery from setting up logging of its own; `infra.telemetry` did."""


def make_jobs(name: str, settings: Settings) -> Celery:
    app = Celery(name, broker=redis_url(settings))
    app.conf.update(
        task_ignore_result=True,
        task_default_queue=name,
        task_serializer="json",
        accept_content=["json"],
        timezone="UTC",
        worker_hijack_root_logger=False,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        beat_schedule_filename=str(settings.home / f"{name}-beat"),
    )
    return app


def every(app: Celery, seconds: float, task: str, *args: str) -> None:
    """Let beat ask for `task(*args)` every so many seconds."""
    schedule = dict(app.conf.beat_schedule or {})
    schedule[f"{task}({', '.join(args)})"] = {
        "task": task,
        "schedule": seconds,
        "args": args,
        "options": {"expires": seconds},
    }
    app.conf.beat_schedule = schedule


def run_worker(app: Celery, stop: threading.Event) -> None:
    """Take jobs in this very process, one at a time, until SIGTERM or SIGINT; `stop` is set at once, so that a long job can end."""
    worker_shutting_down.connect(lambda **_: stop.set(), weak=False)
    worker = app.Worker(
        pool="solo", concurrency=1, without_gossip=True, without_mingle=True, without_heartbeat=True, quiet=True, loglevel="WARNING"
    )
    if not stop.is_set():  # Celery takes the signals over only now; one that came earlier must count
        worker.start()


def run_worker_and_beat(app: Celery, stop: threading.Event) -> None:
    """Both in this process, where one process is enough; beat is a thread and ends with it, even while it waits for Redis."""
    beat = EmbeddedService(app, thread=True, scheduler_cls="celery.beat:Scheduler")
    beat.start()
    try:
        run_worker(app, stop)
    finally:
        beat.service.stop()


def run_beat(app: Celery) -> None:
    """Ask for jobs as `every` says, until SIGTERM or SIGINT. The schedule is kept in memory: there is no file that can be torn."""
    app.Beat(scheduler_cls="celery.beat:Scheduler", quiet=True, loglevel="WARNING").run()
