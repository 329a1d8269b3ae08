"""Celery jobs of the learner: beat asks for a tick of each policy, a worker does it.

Enters: policies and a learner. Leaves: a Celery application. A queue that loses, doubles or delays ticks does no harm, see
`loop`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from infra.jobs import every, make_jobs, run_beat, run_worker
from infra.settings import Settings
from learner.config import LearnerConfig

if TYPE_CHECKING:
    from learner.loop import Learner

_NAME = "learner"
_TICK = "learner.tick"


def work(settings: Settings, of: Learner) -> None:
    """Until SIGTERM or SIGINT; a cycle that runs is abandoned between two steps."""
    # What a cycle needs takes seconds to import; now nobody waits for it.
    import learner.cycle  # noqa: F401

    app = make_jobs(_NAME, settings)
    app.task(name=_TICK)(of.tick)
    run_worker(app, of.stop)


def beat(settings: Settings, config: LearnerConfig, policies: Iterable[str]) -> None:
    app = make_jobs(_NAME, settings)
    for policy in policies:
        every(app, config.tick_seconds, _TICK, policy)
    run_beat(app)
