"""What this gateway says about its versions, for the registry to read: loading, ready, failed with a sentence, freed.

Enters: states. Leaves: rows. When the database is away the newest state of each version is kept and written later.
"""

from __future__ import annotations

import logging
import threading

from contracts.errors import Retry
from infra.clock import Clock, to_ms
from infra.db.engine import writing
from infra.db.insert import upsert
from infra.db.query import Engine, col, update
from infra.db.tables.serving import BootRow, ReplicaRow

logger = logging.getLogger(__name__)


class Replica:
    def __init__(self, engine: Engine, name: str, clock: Clock) -> None:
        self.name = name
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        self._unwritten: dict[str, ReplicaRow] = {}

    def boot(self) -> int:
        """A number that no other start has; what an earlier process of this name held is gone."""
        with writing(self._engine) as session:
            row = BootRow(replica=self.name, at_ms=to_ms(self._clock()))
            session.add(row)
            held = (col(ReplicaRow.replica) == self.name, col(ReplicaRow.state).in_(("loading", "ready")))
            session.execute(update(ReplicaRow).where(*held).values(state="freed", at_ms=to_ms(self._clock())))
            session.flush()
            number = row.boot
        if number is None:
            raise Retry("the database gave this start no number")
        return number

    def note(self, policy: str, version: str, state: str, reason: str | None = None, load_ms: float | None = None) -> None:
        row = ReplicaRow(
            replica=self.name,
            version=version,
            policy=policy,
            state=state,
            reason=reason,
            load_ms=load_ms,
            at_ms=to_ms(self._clock()),
        )
        with self._lock:
            self._unwritten[version] = row
        try:
            self.flush()
        except Retry as away:
            logger.warning("%s is %s, the database will know later: %s", version, state, away)

    def flush(self) -> None:
        with self._lock:
            if not self._unwritten:
                return
            with writing(self._engine) as session:
                upsert(session, ReplicaRow, self._unwritten.values(), ("policy", "state", "reason", "load_ms", "at_ms"))
            self._unwritten.clear()
