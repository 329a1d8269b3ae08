"""What the passing of time does: episodes without news close, outcomes without a turn are refused.

Enters: for each partition read here, the time up to which it has been read. Leaves: revisions and refusals of rows that came from
those partitions, and of no others: in a partition that is behind, what looks quiet may have news that nobody has read yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from operator import eq
from typing import Any

from contracts.policy import Policy
from contracts.states import OUTCOME_NEXT, Disposition, EpisodeState, move
from contracts.topics import OUTCOMES, TURNS
from infra.db.counters import Tally, count_all
from infra.db.engine import reading, writing
from infra.db.query import UNSEEN, Engine, among, and_, col, or_, select, update
from infra.db.tables.ingest import EpisodeRow, OutcomeRow
from infra.eventlog.port import Partition
from infra.people.gate import come_through
from ingest.join.life import lock, store
from ingest.join.publish import publish, quiet_ms
from ingest.join.settle import NO_TURN, join_waiting

_AT_ONCE = 500

Whose = Callable[[Any], Any]
"""From a column with a policy's name to the condition that a row is meant."""


def lanes(reached_ms: Mapping[Partition, int]) -> dict[int, int]:
    """By partition number: an episode's turns and outcomes lie in partitions of one number, and the one that is behind decides."""
    of = {topic: {p.number: ms for p, ms in reached_ms.items() if p.topic == topic} for topic in (TURNS.name, OUTCOMES.name)}
    turns, outcomes = of[TURNS.name], of[OUTCOMES.name]
    return {number: min(turns[number], outcomes[number]) for number in sorted(turns.keys() & outcomes.keys())}


def _beside(names: Sequence[str], column: Any) -> Any:
    """None of these, as ranges: an index finds what is there, where `NOT IN` would look at every row. Where the database sorts
    otherwise, the ranges hold some of the names as well, whose own windows are no longer."""
    gaps = [and_(column > low, column < high) for low, high in pairwise(names)]
    return or_(column < names[0], *gaps, column > names[-1])


class Quiet:
    """A look at each partition and policy takes up at most 500 rows, so that the log does not think its reader dead."""

    def __init__(self, engine: Engine, policies: Mapping[str, Policy], now_ms: int) -> None:
        self._engine = engine
        self._policies = policies
        self._now_ms = now_ms

    def close(self, reached_ms: Mapping[int, int]) -> int:
        """By partition number; answers how many episodes closed."""
        closed = 0
        for number, ms in reached_ms.items():
            for whose, quiet, orphan in self._windows():
                closed += self._close_some(whose, number, ms - quiet)
                self._refuse_some(whose, number, ms - orphan)
        return closed

    def _windows(self) -> Iterator[tuple[Whose, int, int]]:
        """Of each policy, and the longest of them for what was told of a policy that has no file here (any more)."""
        windows = {policy.name: (quiet_ms(policy), int(policy.orphan_seconds * 1000)) for policy in self._policies.values()}
        for name, (quiet, orphan) in windows.items():
            yield partial(eq, name), quiet, orphan
        if windows:
            quiets, orphans = zip(*windows.values(), strict=True)
            yield partial(_beside, sorted(windows)), max(quiets), max(orphans)

    def _close_some(self, whose: Whose, number: int, until_ms: int) -> int:
        due = (
            select(EpisodeRow.episode_id)
            .where(
                EpisodeRow.partition_number == number,
                whose(EpisodeRow.policy),
                EpisodeRow.state == EpisodeState.OPEN,
                EpisodeRow.news_ms <= until_ms,
            )
            .order_by(col(EpisodeRow.news_ms))
            .limit(_AT_ONCE)
        )
        with reading(self._engine) as session:
            found = session.exec(due).all()
        if not found:
            return 0
        with writing(self._engine) as session:
            come_through(session)
            lives = [life for life in lock(session, found).values() if life.state == EpisodeState.OPEN and life.news_ms <= until_ms]
            for life in lives:
                life.close()
            publish(session, self._policies, lives, self._now_ms)
            store(session, lives)
        return len(lives)

    def _refuse_some(self, whose: Whose, number: int, until_ms: int) -> None:
        due = (
            select(OutcomeRow.event_id, OutcomeRow.episode_id)
            .where(
                OutcomeRow.partition_number == number,
                whose(OutcomeRow.policy),
                OutcomeRow.disposition == Disposition.WAITING,
                OutcomeRow.received_ms <= until_ms,
            )
            .order_by(col(OutcomeRow.received_ms))
            .limit(_AT_ONCE)
        )
        with reading(self._engine) as session:
            found = session.exec(due).all()
        if not found:
            return
        tally: Tally = Counter()
        with writing(self._engine) as session:
            come_through(session)
            lives = lock(session, {episode_id for _, episode_id in found})
            join_waiting(session, lives, tally)  # should a turn and its outcome have come through two partitions at once
            news = [life for life in lives.values() if life.news]
            publish(session, self._policies, [life for life in news if life.over or life.is_closed], self._now_ms)
            store(session, news)
            still = col(OutcomeRow.disposition) == Disposition.WAITING
            refused = move(OUTCOME_NEXT, Disposition.WAITING, Disposition.REFUSED)
            orphans = update(OutcomeRow).where(among(col(OutcomeRow.event_id), [event_id for event_id, _ in found]), still)
            session.execute(orphans.values(disposition=refused, reason=NO_TURN), execution_options=UNSEEN)
            count_all(session, tally)
