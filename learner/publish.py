"""Tell MLflow of sealed checkpoints, in a thread of its own: MLflow may be slow or away, and cycles must not wait for it.

Enters: checkpoints whose `published_ms` is NULL. Leaves: registered versions and the time at which each was. Repeating is
harmless, so a crash between the two only registers again, which answers the same number. The topic does not depend on this: it
is fed by the outbox.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from contracts.checkpoint import Checkpoint
from contracts.errors import Retry
from infra.clock import Clock, to_ms
from infra.db.engine import reading, writing
from infra.db.query import Engine, col, select, update
from infra.db.tables.learner import CheckpointRow
from infra.tracking import Tracking

logger = logging.getLogger(__name__)


class Publisher:
    def __init__(self, engine: Engine, tracking: Tracking, clock: Clock, retry_s: float) -> None:
        self._engine = engine
        self._tracking = tracking
        self._clock = clock
        self._retry_s = retry_s
        self._due = 0.0
        self._thread: threading.Thread | None = None

    def nudge(self) -> None:
        """Begin to publish what waits, unless that is being done or failed a moment ago. Returns at once."""
        if self._thread is not None and self._thread.is_alive():
            return
        if time.monotonic() < self._due or not self._waiting():
            return
        # A daemon: a process that was asked to stop does not wait for MLflow's time-outs.
        self._thread = threading.Thread(target=self._publish, name="publish", daemon=True)
        self._thread.start()

    def pause(self, seconds: float) -> None:
        """Try nothing for so long."""
        self._due = time.monotonic() + seconds

    def wait(self, timeout_s: float) -> None:
        """Until the attempt that runs has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _publish(self) -> None:
        try:
            for checkpoint in self._waiting():
                params = {"parent": checkpoint.parent or "", "spec": checkpoint.spec or "", "kind": checkpoint.kind}
                number = self._tracking.register(checkpoint, Path(checkpoint.uri), params)
                with writing(self._engine) as session:
                    session.execute(
                        update(CheckpointRow)
                        .where(col(CheckpointRow.version) == checkpoint.version)
                        .values(published_ms=to_ms(self._clock()))
                    )
                logger.info("MLflow registered %s as its version %s", checkpoint.version, number)
        except Retry as away:
            self.pause(self._retry_s)
            logger.warning("will be registered later: %s", away)
        except Exception:
            self.pause(self._retry_s)
            logger.exception("could not register a checkpoint")

    def _waiting(self) -> list[Checkpoint]:
        with reading(self._engine) as session:
            rows = session.exec(
                select(CheckpointRow.body).where(col(CheckpointRow.published_ms).is_(None)).order_by(col(CheckpointRow.number))
            ).all()
        return [Checkpoint.decode(body) for body in rows]
