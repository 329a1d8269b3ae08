"""Counters of what is not kept: answers without consent, answers asked for by version, turns that could not be written.

Enters: a name per event. Leaves: rows, now and then; a crash loses what was counted since the last write.
"""

from __future__ import annotations

import threading
from collections import Counter

from contracts.errors import Retry
from infra.db.counters import count
from infra.db.engine import writing
from infra.db.query import Engine


class Counts:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: Counter[tuple[str, str]] = Counter()

    def add(self, policy: str, name: str, number: int = 1) -> None:
        with self._lock:
            self._counted[policy, name] += number

    def flush(self, engine: Engine) -> None:
        """Raises `Retry`, having lost nothing, when the database is away."""
        with self._lock:
            counted, self._counted = self._counted, Counter()
        if not counted:
            return
        try:
            with writing(engine) as session:
                for (policy, name), number in sorted(counted.items()):
                    count(session, policy, name, number)
        except Retry:
            with self._lock:
                self._counted.update(counted)
            raise
