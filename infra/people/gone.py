"""Rows go, counts stay: what became of an event is known after its row is gone, and its id still counts once.

Enters: rows of outcomes and refusals that are to go. Leaves: numbers for the counters `gone.joined`, `gone.late`,
`gone.refused.<reason>`, which the caller adds last in the same transaction (`infra.db.counters`), and a digest of each id.
Nothing of an event but 16 bytes of a digest is left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import delete
from sqlmodel import Session, col, select

from contracts.states import Disposition
from infra.db.counters import Tally
from infra.db.insert import insert_new
from infra.db.tables.ingest import OutcomeRow, RefusalRow
from infra.db.tables.people import GoneEventRow

GONE = "gone."
SUBJECT_DELETED = "subject_deleted"
NOBODY = "-"
"""In place of a policy, for events that named none."""

_AT_ONCE = 500


def digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:16]


def counter_of(disposition: str, reason: str | None) -> str:
    """Where an event of this fate is counted once its row is gone. One that still waited is refused by going."""
    if disposition in (Disposition.JOINED, Disposition.LATE):
        return f"{GONE}{disposition}"
    return f"{GONE}{Disposition.REFUSED}.{reason or SUBJECT_DELETED}"


def remember(session: Session, events: Mapping[str, tuple[str, str]], tally: Tally, now_ms: int) -> int:
    """Count events (id to policy and counter) that have no row, each once however often this is repeated; answers how many."""
    by_digest = {digest(event_id): place for event_id, place in events.items()}
    new = insert_new(session, GoneEventRow, [GoneEventRow(digest=one, refused_as=None, gone_ms=now_ms) for one in by_digest])
    tally.update(by_digest[one] for one in new)
    return len(new)


def retire_outcomes(session: Session, event_ids: Collection[str], tally: Tally, now_ms: int) -> int:
    """Let rows of outcomes go; a refusal of the same id goes with them, since it is not what became of the event."""
    gone = 0
    for some in _chunks(event_ids):
        rows = session.execute(
            delete(OutcomeRow)
            .where(col(OutcomeRow.event_id).in_(some))
            .returning(col(OutcomeRow.event_id), col(OutcomeRow.policy), col(OutcomeRow.disposition), col(OutcomeRow.reason))
        ).all()
        gone += remember(session, {event: (policy, counter_of(fate, why)) for event, policy, fate, why in rows}, tally, now_ms)
        session.execute(delete(RefusalRow).where(col(RefusalRow.event_id).in_(some)))
    return gone


def retire_refusals(session: Session, refusal_ids: Collection[str], tally: Tally, now_ms: int) -> int:
    """Let rows of refusals go. Where the event came again, mended, what became of it then counts, not this."""
    gone = 0
    for some in _chunks(refusal_ids):
        rows = session.execute(
            delete(RefusalRow)
            .where(col(RefusalRow.refusal_id).in_(some))
            .returning(col(RefusalRow.refusal_id), col(RefusalRow.event_id), col(RefusalRow.policy), col(RefusalRow.reason))
        ).all()
        known = [event for _, event, _, _ in rows if event is not None]
        mended = set(session.exec(select(OutcomeRow.event_id).where(col(OutcomeRow.event_id).in_(known))).all())
        left = {digest(refusal): (policy or NOBODY, why) for refusal, event, policy, why in rows if event not in mended}
        entries = [GoneEventRow(digest=one, refused_as=f"{policy} {why}", gone_ms=now_ms) for one, (policy, why) in left.items()]
        for one in insert_new(session, GoneEventRow, entries):
            policy, why = left[one]
            tally[policy, counter_of(Disposition.REFUSED, why)] += 1
        gone += len(rows)
    return gone


def take_back(session: Session, rows: Iterable[GoneEventRow], tally: Tally) -> None:
    """Refusals whose event came again after all, mended: it is that event's fate that counts from now on."""
    for row in rows:
        policy, _, why = (row.refused_as or "").partition(" ")
        tally[policy, counter_of(Disposition.REFUSED, why)] -= 1
        session.delete(row)


def _chunks(names: Collection[str]) -> Iterable[list[str]]:
    ordered = sorted(names)
    return (ordered[start : start + _AT_ONCE] for start in range(0, len(ordered), _AT_ONCE))
