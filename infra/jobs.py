"""Celery: who runs jobs, and when. Redis carries the queue; truth stays in SQL, so a lost or doubled job does no harm.

Enters: settings. Leaves: a Celery application. A beat job that nobody took before the next one is due expires.
"""

from __future__ import annotations

from celery import Celery

from infra.cache import redis_url
from infra.settings import Settings


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
