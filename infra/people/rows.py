"""A person's rows: found by their hashes, let go in small transactions.

Enters: hashes. Leaves: episode ids, and with `erase_some` fewer rows. An episode is one conversation and its revisions hold all of
it, so where two people took part in one, deleting either takes the whole of it. What is counted of events stays counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import delete
from sqlmodel import Session, SQLModel, col, select

from contracts.states import Disposition, SampleState
from infra.db.counters import Tally, count_all
from infra.db.insert import insert_new
from infra.db.query import update
from infra.db.tables.ingest import EpisodeRow, OutcomeRow, RefusalRow, RevisionRow, TurnRow
from infra.db.tables.people import ErasedRow
from infra.db.tables.rewarding import RewardPartRow, RewardRow, SampleRow
from infra.db.tables.stream import OutboxRow
from infra.people.gone import GONE, SUBJECT_DELETED, digest, retire_outcomes

AT_ONCE = 200

_BY_SUBJECT = (
    (TurnRow.episode_id, TurnRow.subject, TurnRow.started_ms),
    (EpisodeRow.episode_id, EpisodeRow.subject, EpisodeRow.news_ms),
    (RewardRow.episode_id, RewardRow.subject, RewardRow.closed_ms),
    (SampleRow.sample_id, SampleRow.subject, SampleRow.sampled_ms),
)
"""Each on its own: retention lets them go at different times."""


_BY_EPISODE: tuple[tuple[str, type[SQLModel], Any], ...] = (
    ("turns", TurnRow, col(TurnRow.episode_id)),
    ("revisions", RevisionRow, col(RevisionRow.episode_id)),
    ("rewards", RewardRow, col(RewardRow.episode_id)),
    ("reward parts", RewardPartRow, col(RewardPartRow.episode_id)),
    ("samples", SampleRow, col(SampleRow.sample_id)),
    ("episodes", EpisodeRow, col(EpisodeRow.episode_id)),
    ("promises", OutboxRow, col(OutboxRow.record_key)),
)


def episodes_of(session: Session, hashes: Collection[str], until_ms: int, most: int | None = None) -> list[str]:
    """Ids of episodes of which anything from before `until_ms` is stored, sorted; at most so many."""
    found: set[str] = set()
    for name, subject, at_ms in _BY_SUBJECT:
        query = select(name).where(col(subject).in_(hashes), col(at_ms) <= until_ms).distinct()
        found.update(session.exec(query if most is None else query.limit(most)).all())
    return sorted(found)[:most]


def hold_back(session: Session, hashes: Collection[str]) -> int:
    """No cycle that begins from now on learns from this person; answers how many samples waited."""
    waiting = (col(SampleRow.subject).in_(hashes), col(SampleRow.state) == SampleState.READY)
    values = {"state": SampleState.QUARANTINED, "reason": SUBJECT_DELETED}
    return len(session.execute(update(SampleRow).where(*waiting).values(values).returning(col(SampleRow.sample_id))).all())


def erase_some(session: Session, episodes: Sequence[str], deletion_id: str, until_ms: int) -> Counter[str]:
    """Everything of these episodes, in the caller's transaction; answers how many rows went, by kind.

    A sample that a running cycle has claimed goes too: the cycle then finds that its samples are not those it was trained on, and
    seals nothing (`learner.ledger`).
    """
    went: Counter[str] = Counter()
    tally: Tally = Counter()
    turns = session.exec(select(TurnRow.turn_id, TurnRow.policy).where(col(TurnRow.episode_id).in_(episodes))).all()
    named = [*(turn_id for turn_id, _ in turns), *episodes]
    insert_new(session, ErasedRow, [ErasedRow(digest=digest(name), deletion_id=deletion_id, deleted_ms=until_ms) for name in named])
    tally.update((policy, f"{GONE}turns") for _, policy in turns)
    session.execute(
        update(OutcomeRow)
        .where(col(OutcomeRow.episode_id).in_(episodes), col(OutcomeRow.disposition) == Disposition.WAITING)
        .values(disposition=Disposition.REFUSED, reason=SUBJECT_DELETED)
    )
    events = session.exec(select(OutcomeRow.event_id).where(col(OutcomeRow.episode_id).in_(episodes))).all()
    went["refusals"] += len(session.exec(select(RefusalRow.refusal_id).where(col(RefusalRow.event_id).in_(events))).all())
    went["outcomes"] += retire_outcomes(session, events, tally, until_ms)
    for name, table, column in _BY_EPISODE:
        went[name] += len(session.execute(delete(table).where(column.in_(episodes)).returning(column)).all())
    count_all(session, tally)
    return went
