"""What must not come back: the joiner asks here before it keeps anything.

Enters: a batch of turns, outcomes and refusals, in the joiner's transaction. Leaves: those that may be kept. Left out, each
counted once: an event whose row is gone (a repeat), and whatever is about a deleted person from before the deletion
(`subject_deleted`), however late it comes or however often the log is read again. A turn that a person makes after their
deletion is theirs to make: it is kept, unless they opted out as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlmodel import Session, col, select

from contracts.outcome import Outcome, Refusal
from contracts.states import Disposition
from contracts.turn import Turn
from infra.clock import to_ms
from infra.db.counters import count
from infra.db.insert import insert_new
from infra.db.tables.ingest import OutcomeRow, TurnRow
from infra.db.tables.people import DeletedSubjectRow, ErasedRow, GoneEventRow
from infra.people import gate
from infra.people.gone import SUBJECT_DELETED, counter_of, digest, remember, retire_outcomes, take_back


@dataclass(frozen=True)
class Screened:
    turns: list[Turn]
    outcomes: list[Outcome]
    refusals: list[Refusal]


def screen(
    session: Session, turns: Sequence[Turn], outcomes: Sequence[Outcome], refusals: Sequence[Refusal], now_ms: int
) -> Screened:
    gate.come_through(session)
    kept, news = _not_gone(session, outcomes, refusals)
    if not _any(session, DeletedSubjectRow.subject):
        return Screened(list(turns), kept, news)
    allowed = _of_nobody_deleted(session, turns, now_ms)
    return Screened(allowed, _about_nobody_deleted(session, kept, {turn.episode_id for turn in allowed}, now_ms), news)


def _not_gone(session: Session, outcomes: Sequence[Outcome], refusals: Sequence[Refusal]) -> tuple[list[Outcome], list[Refusal]]:
    digests = {digest(o.event_id) for o in outcomes} | {digest(r.refusal_id) for r in refusals}
    if not digests or not _any(session, GoneEventRow.digest):
        return list(outcomes), list(refusals)
    gone = {row.digest: row for row in session.exec(select(GoneEventRow).where(col(GoneEventRow.digest).in_(digests))).all()}
    if not gone:
        return list(outcomes), list(refusals)
    kept, mended = [], {}
    repeated: Counter[str] = Counter()
    for outcome in outcomes:
        row = gone.get(digest(outcome.event_id))
        if row is not None and row.refused_as is None:
            repeated[outcome.policy] += 1
            continue
        if row is not None:
            mended[row.digest] = row
        kept.append(outcome)
    take_back(session, mended.values())
    for policy, number in sorted(repeated.items()):
        count(session, policy, "repeated_events", number)
    return kept, [refusal for refusal in refusals if digest(refusal.refusal_id) not in gone]


def _of_nobody_deleted(session: Session, turns: Sequence[Turn], now_ms: int) -> list[Turn]:
    if not turns:
        return []
    subjects = {turn.subject for turn in turns}
    deleted = {
        row.subject: row
        for row in session.exec(select(DeletedSubjectRow).where(col(DeletedSubjectRow.subject).in_(subjects))).all()
    }
    erased = _erased(session, {turn.turn_id for turn in turns})
    allowed: list[Turn] = []
    refused: dict[bytes, tuple[Turn, str]] = {}
    for turn in turns:
        row, one = deleted.get(turn.subject), digest(turn.turn_id)
        if row is not None and to_ms(turn.started_at) <= row.deleted_ms:
            refused[one] = (turn, row.deletion_id)
        elif one in erased:
            refused[one] = (turn, erased[one].deletion_id)
        else:
            allowed.append(turn)
    if refused:
        _erase_late(session, refused, now_ms)
    return allowed


def _erase_late(session: Session, refused: dict[bytes, tuple[Turn, str]], now_ms: int) -> None:
    """Turns that came after their person was deleted: their ids are remembered as erased, and what waited for them goes."""
    rows = [ErasedRow(digest=one, deletion_id=deletion, deleted_ms=now_ms) for one, (_, deletion) in refused.items()]
    new = insert_new(session, ErasedRow, rows)
    for policy, number in sorted(Counter(refused[one][0].policy for one in new).items()):
        count(session, policy, f"turns_{SUBJECT_DELETED}", number)
    episodes = {turn.episode_id: deletion for turn, deletion in refused.values()}
    marks = [ErasedRow(digest=digest(name), deletion_id=deletion, deleted_ms=now_ms) for name, deletion in episodes.items()]
    insert_new(session, ErasedRow, marks)
    waiting = session.exec(
        select(OutcomeRow).where(
            col(OutcomeRow.episode_id).in_(episodes), col(OutcomeRow.disposition).in_((Disposition.WAITING, Disposition.REFUSED))
        )
    ).all()
    turn_ids = {turn.turn_id for turn, _ in refused.values()}
    lost = [row for row in waiting if Outcome.decode(row.body).turn_id in turn_ids | {None}]
    for row in lost:
        # What was refused as an orphan keeps that reason; what still waited is refused now.
        row.reason = row.reason if row.disposition == Disposition.REFUSED else SUBJECT_DELETED
        session.add(row)
    session.flush()
    retire_outcomes(session, [row.event_id for row in lost], now_ms)


def _about_nobody_deleted(session: Session, outcomes: Sequence[Outcome], continued: set[str], now_ms: int) -> list[Outcome]:
    """What names an erased turn is refused. What names only the episode is, unless the person went on in it afterwards."""
    erased = _erased(session, {o.turn_id for o in outcomes if o.turn_id} | {o.episode_id for o in outcomes})
    if not erased:
        return list(outcomes)
    open_ended = {o.episode_id for o in outcomes if o.turn_id is None and digest(o.episode_id) in erased}
    alive = continued | set(session.exec(select(TurnRow.episode_id).where(col(TurnRow.episode_id).in_(open_ended))).all())
    allowed: list[Outcome] = []
    refused: dict[str, tuple[str, str]] = {}
    for outcome in outcomes:
        row = erased.get(digest(outcome.turn_id if outcome.turn_id is not None else outcome.episode_id))
        if row is None or (outcome.turn_id is None and outcome.episode_id in alive and to_ms(outcome.received_at) > row.deleted_ms):
            allowed.append(outcome)
        else:
            refused[outcome.event_id] = (outcome.policy, counter_of(Disposition.REFUSED, SUBJECT_DELETED))
    remember(session, refused, now_ms)
    return allowed


def _erased(session: Session, names: Collection[str]) -> dict[bytes, ErasedRow]:
    digests = {digest(name) for name in names}
    return {row.digest: row for row in session.exec(select(ErasedRow).where(col(ErasedRow.digest).in_(digests))).all()}


def _any(session: Session, column: Any) -> bool:
    return session.exec(select(column).limit(1)).first() is not None
