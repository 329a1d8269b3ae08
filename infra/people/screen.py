"""What must not come back: the joiner asks here before it keeps anything.

Enters: a batch of turns, outcomes and refusals by id, in the joiner's transaction. Leaves: the ids that must be left out, each
counted once: an event whose row is gone (a repeat), and whatever is about a deleted person from before the deletion
(`subject_deleted`), however late it comes and however often the log is read again. A turn that a person makes after their
deletion is theirs to make: it is kept, unless they opted out as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlmodel import Session, col, select

from contracts.outcome import Outcome, Refusal
from contracts.states import Disposition
from contracts.turn import Turn
from infra.clock import to_ms
from infra.db.counters import Tally
from infra.db.insert import insert_new
from infra.db.tables.ingest import OutcomeRow, TurnRow
from infra.db.tables.people import DeletedSubjectRow, ErasedRow, GoneEventRow
from infra.people import gate
from infra.people.gone import SUBJECT_DELETED, counter_of, digest, remember, retire_outcomes, take_back


@dataclass(frozen=True)
class LeftOut:
    turns: set[str] = field(default_factory=set)
    outcomes: set[str] = field(default_factory=set)
    refusals: set[str] = field(default_factory=set)


def screen(
    session: Session,
    turns: Mapping[str, Turn],
    outcomes: Mapping[str, Outcome],
    refusals: Mapping[str, Refusal],
    tally: Tally,
    now_ms: int,
) -> LeftOut:
    gate.come_through(session)
    out = _gone(session, outcomes, refusals, tally)
    if _any(session, DeletedSubjectRow.subject):
        out.turns.update(_of_the_deleted(session, turns, tally, now_ms))
        told = {name: outcome for name, outcome in outcomes.items() if name not in out.outcomes}
        continued = {turn.episode_id for name, turn in turns.items() if name not in out.turns}
        out.outcomes.update(_about_the_deleted(session, told, continued, tally, now_ms))
    return out


def _gone(session: Session, outcomes: Mapping[str, Outcome], refusals: Mapping[str, Refusal], tally: Tally) -> LeftOut:
    out = LeftOut()
    digests = {digest(name) for name in (*outcomes, *refusals)}
    if not digests or not _any(session, GoneEventRow.digest):
        return out
    gone = {row.digest: row for row in session.exec(select(GoneEventRow).where(col(GoneEventRow.digest).in_(digests))).all()}
    mended = []
    for name, outcome in outcomes.items():
        row = gone.get(digest(name))
        if row is not None and row.refused_as is None:
            out.outcomes.add(name)
            tally[outcome.policy, "repeated_events"] += 1
        elif row is not None:
            mended.append(row)
    take_back(session, mended, tally)
    out.refusals.update(name for name in refusals if digest(name) in gone)
    return out


def _of_the_deleted(session: Session, turns: Mapping[str, Turn], tally: Tally, now_ms: int) -> set[str]:
    query = select(DeletedSubjectRow).where(col(DeletedSubjectRow.subject).in_({turn.subject for turn in turns.values()}))
    deleted = {row.subject: row for row in session.exec(query).all()}
    erased = _erased(session, turns)
    late: dict[str, str] = {}
    for name, turn in turns.items():
        row, mark = deleted.get(turn.subject), erased.get(digest(name))
        if row is not None and to_ms(turn.started_at) <= row.deleted_ms:
            late[name] = row.deletion_id
        elif mark is not None:
            late[name] = mark.deletion_id
    if late:
        _erase_late(session, {name: turns[name] for name in late}, late, tally, now_ms)
    return set(late)


def _erase_late(session: Session, turns: Mapping[str, Turn], deletions: Mapping[str, str], tally: Tally, now_ms: int) -> None:
    """Turns that came after their person was deleted: their ids are remembered as erased, and what waited for them goes."""
    by_digest = {digest(name): name for name in turns}
    new = insert_new(session, ErasedRow, [_mark(name, deletions[name], now_ms) for name in turns])
    tally.update((turns[by_digest[one]].policy, f"turns_{SUBJECT_DELETED}") for one in new)
    episodes = {turn.episode_id: deletions[name] for name, turn in turns.items()}
    insert_new(session, ErasedRow, [_mark(episode, deletion, now_ms) for episode, deletion in episodes.items()])
    waiting = session.exec(
        select(OutcomeRow).where(
            col(OutcomeRow.episode_id).in_(list(episodes)),
            col(OutcomeRow.disposition).in_((Disposition.WAITING, Disposition.REFUSED)),
        )
    ).all()
    lost = [row for row in waiting if row.turn_id is None or row.turn_id in turns]
    for row in lost:
        if row.disposition == Disposition.WAITING:  # what was refused as an orphan keeps that reason
            row.reason = SUBJECT_DELETED
            session.add(row)
    session.flush()
    retire_outcomes(session, [row.event_id for row in lost], tally, now_ms)


def _about_the_deleted(
    session: Session, outcomes: Mapping[str, Outcome], continued: set[str], tally: Tally, now_ms: int
) -> set[str]:
    """What names an erased turn is refused. What names only the episode is, unless the person went on in it afterwards."""
    erased = _erased(session, {told.turn_id if told.turn_id is not None else told.episode_id for told in outcomes.values()})
    if not erased:
        return set()
    open_ended = {told.episode_id for told in outcomes.values() if told.turn_id is None and digest(told.episode_id) in erased}
    alive = continued | set(session.exec(select(TurnRow.episode_id).where(col(TurnRow.episode_id).in_(open_ended))).all())
    refused: dict[str, tuple[str, str]] = {}
    for name, told in outcomes.items():
        mark = erased.get(digest(told.turn_id if told.turn_id is not None else told.episode_id))
        goes_on = mark is not None and told.turn_id is None and told.episode_id in alive
        if mark is not None and not (goes_on and to_ms(told.received_at) > mark.deleted_ms):
            refused[name] = (told.policy, counter_of(Disposition.REFUSED, SUBJECT_DELETED))
    remember(session, refused, tally, now_ms)
    return set(refused)


def _erased(session: Session, names: Collection[str]) -> dict[bytes, ErasedRow]:
    digests = {digest(name) for name in names}
    return {row.digest: row for row in session.exec(select(ErasedRow).where(col(ErasedRow.digest).in_(digests))).all()}


def _mark(name: str, deletion_id: str, now_ms: int) -> ErasedRow:
    return ErasedRow(digest=digest(name), deletion_id=deletion_id, deleted_ms=now_ms)


def _any(session: Session, column: Any) -> bool:
    return session.exec(select(column).limit(1)).first() is not None
