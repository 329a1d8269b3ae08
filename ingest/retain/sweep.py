"""One look at everything that may have been kept long enough.

Enters: policies, and where data lies. Leaves: less of it, counted by policy and kind in one log line each. Every few hundred rows
are a transaction of their own: a worker that is killed has lost nothing and repeats nothing, and two that sweep at once count each
row once. What can go wrong: the database or the log is away (`Retry`); the next look does what this one did not.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from contracts.policy import Policy
from infra.clock import Clock, to_ms
from infra.db.counters import Tally, count_all
from infra.db.engine import reading, writing
from infra.people import deletion, gate
from ingest.retain.outside import drop_dead_letters, drop_payloads, drop_spooled
from ingest.retain.rows import KINDS, Kind, When, marks_go
from ingest.retain.terms import Policies, terms

logger = logging.getLogger(__name__)

_LOOK = 10_000
"""Ids per look: each is a search through whole tables."""


class Retention:
    """`stop`: a sweep ends between two transactions once it is set."""

    def __init__(
        self, policies: Iterable[Policy], where: deletion.Places, clock: Clock, batch: int, stop: threading.Event | None = None
    ) -> None:
        self._policies = tuple(policies)
        self._where = where
        self._clock = clock
        self._batch = batch
        self._stop = stop or threading.Event()

    def sweep(self) -> Counter[str]:
        """Answers how much went, by kind."""
        now_ms = to_ms(self._clock())
        until = terms(self._policies, now_ms)
        gone: Counter[str] = Counter()
        for name, kind in KINDS.items():
            for of, before_ms in until.each(kind.knob):
                gone[name] += self._let_go(kind, of, When(before_ms, now_ms))
        gone["ids"] = self._let_marks_go(until.longest("ids_days"))
        gone["dead letters"] = drop_dead_letters(self._where, until.shared("dead_letters_days"), now_ms)
        gone["payloads"] = drop_payloads(self._where, until.shared("payloads_days"), now_ms)
        gone["spooled"] = drop_spooled(self._where, until.shared("spools_days"), now_ms)
        for name, number in gone.items():
            if number:
                logger.info("kept long enough: %d %s went", number, name)
        return +gone

    def finish(self) -> int:
        """Go on with deletions that had to wait; answers how many are done now."""
        now_ms = to_ms(self._clock())
        return sum(deletion.finish(self._where, deletion_id, now_ms) for deletion_id in deletion.unfinished(self._where.engine))

    def _let_go(self, kind: Kind, of: Policies, when: When) -> int:
        total = 0
        while not self._stop.is_set():
            with reading(self._where.engine) as session:
                due: Sequence[Any] = session.exec(kind.due(of, when.before_ms).limit(_LOOK)).all()
            went = sum(self._some(kind, due[start : start + self._batch], when) for start in range(0, len(due), self._batch))
            total += went
            if not went or len(due) < _LOOK:
                break
        return total

    def _some(self, kind: Kind, ids: Sequence[Any], when: When) -> int:
        if self._stop.is_set():
            return 0
        tally: Tally = Counter()
        with writing(self._where.engine) as session:
            gate.come_through(session)
            went = kind.go(session, ids, tally, when)
            count_all(session, tally)
        return went

    def _let_marks_go(self, before_ms: int) -> int:
        total = 0
        while not self._stop.is_set():
            with writing(self._where.engine) as session:
                went = marks_go(session, before_ms, self._batch)
            total += went
            if not went:
                break
        return total
