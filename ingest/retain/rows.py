"""Rows that were kept long enough, by kind: which they are, and how they go.

Enters: a session in a transaction. Leaves: fewer rows, and the same sums: what became of an event is moved into counters before
its row goes, and its id is remembered. Each kind looks for ids first, all in one query, and checks again under a lock whether they
may go. What a running cycle has claimed stays. An episode goes as a whole, and its row last, so that no revision is ever numbered
anew; what was trained on keeps its row without its tokens, for lineage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.states import Disposition, EpisodeState, SampleState
from infra.db.counters import Tally
from infra.db.query import Session, col, delete, exists, select, update
from infra.db.tables.ingest import EpisodeRow, OutcomeRow, RefusalRow, RevisionRow, TurnRow
from infra.db.tables.learner import CycleRow
from infra.db.tables.people import ErasedRow, GoneEventRow
from infra.db.tables.rewarding import RewardPartRow, RewardRow, SampleRow
from infra.people.gone import GONE, retire_outcomes, retire_refusals
from ingest.retain.terms import Policies

OVER = (EpisodeState.CLOSED, EpisodeState.CONSUMED)
UNTRAINED = (SampleState.READY, SampleState.EXCLUDED, SampleState.QUARANTINED)

Due = Callable[[Policies, int], Any]
Go = Callable[[Session, Sequence[Any], Tally, "When"], int]


@dataclass(frozen=True)
class When:
    """Unix, milliseconds. Data from before `before_ms` goes, at `now_ms`."""

    before_ms: int
    now_ms: int


@dataclass(frozen=True)
class Kind:
    """`knob`: the field of a policy's retention. `due`: a query for ids. `go`: lets some of them go, answers how many rows went."""

    knob: str
    due: Due
    go: Go


def _unclaimed(episode_id: Any) -> Any:
    return ~exists().where(col(SampleRow.sample_id) == episode_id, col(SampleRow.state) == SampleState.CLAIMED)


def _no(table: Any, episode_id: Any) -> Any:
    return ~exists().where(table.episode_id == episode_id)


def _raw_due(of: Policies, before_ms: int) -> Any:
    """Both clocks: recorded traffic may tell of times long gone, and was received today."""
    return (
        select(TurnRow.episode_id)
        .join(EpisodeRow, col(EpisodeRow.episode_id) == col(TurnRow.episode_id))
        .where(
            of(TurnRow.policy),
            TurnRow.received_ms < before_ms,
            EpisodeRow.news_ms < before_ms,
            col(EpisodeRow.state).in_(OVER),
            _unclaimed(col(TurnRow.episode_id)),
        )
        .distinct()
    )


def _raw_go(session: Session, episodes: Sequence[str], tally: Tally, when: When) -> int:
    held = select(EpisodeRow.episode_id).where(
        col(EpisodeRow.episode_id).in_(episodes),
        col(EpisodeRow.state).in_(OVER),
        EpisodeRow.news_ms < when.before_ms,
        _unclaimed(col(EpisodeRow.episode_id)),
    )
    mine = session.exec(held.order_by(col(EpisodeRow.episode_id)).with_for_update()).all()
    settled = (col(OutcomeRow.episode_id).in_(mine), OutcomeRow.disposition != Disposition.WAITING)
    events = session.exec(select(OutcomeRow.event_id).where(*settled)).all()
    gone = retire_outcomes(session, events, tally, when.now_ms)
    turns = session.execute(delete(TurnRow).where(col(TurnRow.episode_id).in_(mine)).returning(col(TurnRow.policy))).scalars().all()
    tally.update((policy, f"{GONE}turns") for policy in turns)
    return gone + len(turns)


def _stray_due(of: Policies, before_ms: int) -> Any:
    """Outcomes without a turn: orphans, and what came after its episode had gone. One that waits is not decided yet."""
    return select(OutcomeRow.event_id).where(
        of(OutcomeRow.policy),
        OutcomeRow.received_ms < before_ms,
        OutcomeRow.disposition != Disposition.WAITING,
        _no(TurnRow, col(OutcomeRow.episode_id)),
    )


def _stray_go(session: Session, events: Sequence[str], tally: Tally, when: When) -> int:
    return retire_outcomes(session, events, tally, when.now_ms)


def _revisions_due(of: Policies, before_ms: int) -> Any:
    return (
        select(RevisionRow.episode_id)
        .where(of(RevisionRow.policy), RevisionRow.published_ms < before_ms, _unclaimed(col(RevisionRow.episode_id)))
        .distinct()
    )


def _revisions_go(session: Session, episodes: Sequence[str], _tally: Tally, when: When) -> int:
    old = (col(RevisionRow.episode_id).in_(episodes), col(RevisionRow.published_ms) < when.before_ms)
    return len(session.execute(delete(RevisionRow).where(*old).returning(col(RevisionRow.episode_id))).all())


def _rewards_due(of: Policies, before_ms: int) -> Any:
    """As long as a revision is there, so is what follows from it: it would be computed anew."""
    return (
        select(RewardRow.episode_id)
        .where(
            of(RewardRow.policy),
            RewardRow.closed_ms < before_ms,
            _no(RevisionRow, col(RewardRow.episode_id)),
            _unclaimed(col(RewardRow.episode_id)),
        )
        .distinct()
    )


def _rewards_go(session: Session, episodes: Sequence[str], _tally: Tally, _when: When) -> int:
    session.execute(delete(RewardPartRow).where(col(RewardPartRow.episode_id).in_(episodes)))
    return len(
        session.execute(delete(RewardRow).where(col(RewardRow.episode_id).in_(episodes)).returning(col(RewardRow.spec))).all()
    )


def _samples_due(of: Policies, before_ms: int) -> Any:
    return select(SampleRow.sample_id).where(
        of(SampleRow.policy),
        SampleRow.sampled_ms < before_ms,
        col(SampleRow.state).in_(UNTRAINED),
        _no(RevisionRow, col(SampleRow.sample_id)),
    )


def _samples_go(session: Session, samples: Sequence[str], tally: Tally, _when: When) -> int:
    went = session.execute(
        delete(SampleRow)
        .where(col(SampleRow.sample_id).in_(samples), col(SampleRow.state).in_(UNTRAINED))
        .returning(col(SampleRow.policy), col(SampleRow.state))
    ).all()
    tally.update((policy, f"{GONE}samples.{state}") for policy, state in went)
    return len(went)


def _trained_due(of: Policies, before_ms: int) -> Any:
    return (
        select(SampleRow.sample_id)
        .join(CycleRow, col(CycleRow.cycle_id) == col(SampleRow.cycle_id))
        .where(
            of(SampleRow.policy), SampleRow.state == SampleState.CONSUMED, col(CycleRow.ended_ms) < before_ms, SampleRow.body != ""
        )
    )


def _trained_go(session: Session, samples: Sequence[str], _tally: Tally, _when: When) -> int:
    consumed = (col(SampleRow.sample_id).in_(samples), col(SampleRow.state) == SampleState.CONSUMED, col(SampleRow.body) != "")
    return len(session.execute(update(SampleRow).where(*consumed).values(body="").returning(col(SampleRow.sample_id))).all())


def _episodes_due(of: Policies, before_ms: int) -> Any:
    """Of which nothing else is left."""
    episode_id = col(EpisodeRow.episode_id)
    waits = exists().where(col(SampleRow.sample_id) == episode_id, col(SampleRow.state).in_((*UNTRAINED, SampleState.CLAIMED)))
    nothing = (_no(table, episode_id) for table in (TurnRow, RevisionRow, RewardRow))
    return select(EpisodeRow.episode_id).where(
        of(EpisodeRow.policy), EpisodeRow.news_ms < before_ms, col(EpisodeRow.state).in_(OVER), *nothing, ~waits
    )


def _episodes_go(session: Session, episodes: Sequence[str], _tally: Tally, when: When) -> int:
    mine = session.exec(
        select(EpisodeRow.episode_id)
        .where(col(EpisodeRow.episode_id).in_(episodes), EpisodeRow.news_ms < when.before_ms)
        .order_by(col(EpisodeRow.episode_id))
        .with_for_update()
    ).all()
    # A turn that came between the look and the lock has made it somebody's again.
    alive = set(session.exec(select(TurnRow.episode_id).where(col(TurnRow.episode_id).in_(mine))).all())
    gone = delete(EpisodeRow).where(col(EpisodeRow.episode_id).in_([one for one in mine if one not in alive]))
    return len(session.execute(gone.returning(col(EpisodeRow.episode_id))).all())


def _refusals_due(of: Policies, before_ms: int) -> Any:
    return select(RefusalRow.refusal_id).where(of(RefusalRow.policy), RefusalRow.received_ms < before_ms)


def _refusals_go(session: Session, refusals: Sequence[str], tally: Tally, when: When) -> int:
    return retire_refusals(session, refusals, tally, when.now_ms)


KINDS: Mapping[str, Kind] = {
    "raw": Kind("raw_days", _raw_due, _raw_go),
    "strays": Kind("raw_days", _stray_due, _stray_go),
    "revisions": Kind("revisions_days", _revisions_due, _revisions_go),
    "rewards": Kind("rewards_days", _rewards_due, _rewards_go),
    "samples": Kind("rewards_days", _samples_due, _samples_go),
    "trained": Kind("trained_days", _trained_due, _trained_go),
    "episodes": Kind("raw_days", _episodes_due, _episodes_go),
    "refusals": Kind("refusals_days", _refusals_due, _refusals_go),
}
"""In the order in which they go."""


def marks_go(session: Session, before_ms: int, most: int) -> int:
    """Digests of ids: from then on an id that comes again is a new one."""
    gone = 0
    for table, at_ms in ((GoneEventRow, GoneEventRow.gone_ms), (ErasedRow, ErasedRow.deleted_ms)):
        old = session.exec(select(table.digest).where(col(at_ms) < before_ms).limit(most)).all()
        session.execute(delete(table).where(col(table.digest).in_(old)))
        gone += len(old)
    return gone
