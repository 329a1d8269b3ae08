"""What is kept outside the database: dead letters, large payloads, spools that nobody came back to.

Enters: where they lie and the moment before which they must go. Leaves: less of them. An event that was spooled and never reached
the log is entered into the books before its file goes: refused, `spool_expired`.
"""

from __future__ import annotations

import logging
from collections import Counter

from contracts.errors import Poison
from contracts.outcome import Outcome
from contracts.states import Disposition
from contracts.topics import DAY_S, OUTCOMES, TURNS, dead_letter
from contracts.turn import Turn
from infra.db.counters import Tally, count_all
from infra.db.engine import writing
from infra.eventlog.embedded_erase import erase
from infra.eventlog.payloads import Payloads
from infra.people import spooled
from infra.people.deletion import Places
from infra.people.gone import GONE, NOBODY, counter_of, remember

logger = logging.getLogger(__name__)

_IN_LOG_S = max(TURNS.retention_s, OUTCOMES.retention_s) + DAY_S
"""A payload must outlive the pointers to it."""


def drop_dead_letters(where: Places, before_ms: int, _now_ms: int) -> int:
    """On a broker they go by their topics' own retention."""
    if where.log is None or where.log_file is None:
        return 0
    log, gone = where.log, 0
    for topic in (TURNS, OUTCOMES):
        grave = dead_letter(topic.name)
        old = [(message.place, message.offset) for message in log.scan(grave) if message.timestamp_ms < before_ms]
        if old:
            gone += erase(where.log_file, old)
    if gone:
        with writing(where.engine) as session:
            count_all(session, {(NOBODY, f"{GONE}dead_letters"): gone})
    return gone


def drop_payloads(where: Places, before_ms: int, now_ms: int) -> int:
    return Payloads(where.payloads).trim(max(_IN_LOG_S, (now_ms - before_ms) / 1000), now_ms / 1000)


def drop_spooled(where: Places, before_ms: int, now_ms: int) -> int:
    def enter(topic: str, value: bytes) -> None:
        tally: Tally = Counter()
        with writing(where.engine) as session:
            remember(session, _event(topic, value), tally, now_ms)
            count_all(session, tally)

    gone = spooled.expire(where.spool, before_ms / 1000, enter)
    if gone:
        logger.error("%d entries in %s never reached the log and were kept long enough: they are gone", gone, where.spool)
    return gone


def _event(topic: str, value: bytes) -> dict[str, tuple[str, str]]:
    """A turn is no event; its digest is kept beside those of events so that it, too, is counted once."""
    try:
        if topic == TURNS.name:
            turn = Turn.decode(value)
            return {f"turn {turn.turn_id}": (turn.policy, "turns_lost")}
        outcome = Outcome.decode(value)
        return {outcome.event_id: (outcome.policy, counter_of(Disposition.REFUSED, "spool_expired"))}
    except Poison:
        return {}
