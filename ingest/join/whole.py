"""All there is of some episodes, in an order that does not depend on how it came.

Enters: ids of episodes that have a turn. Leaves: for each its turns by (started_at, turn_id) and its joined outcomes by (time,
event_id). What the caller has at hand is not decoded again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from contracts.outcome import Outcome
from contracts.record import Moment
from contracts.states import Disposition
from contracts.turn import Turn
from infra.clock import to_ms
from infra.db.query import Session, col, select
from infra.db.tables.ingest import OutcomeRow, TurnRow
from ingest.join.times import event_time


@dataclass(frozen=True)
class Whole:
    turns: tuple[Turn, ...]
    timed: tuple[tuple[Moment, Outcome], ...]

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(outcome for _, outcome in self.timed)

    @property
    def last_ms(self) -> int:
        """When the last thing happened."""
        return to_ms(max([self.turns[-1].started_at, *(at for at, _ in self.timed[-1:])]))

    @property
    def closed_ms(self) -> int | None:
        """When a client first said that it is over; None: none did."""
        return next((to_ms(at) for at, outcome in self.timed if outcome.happening.kind == "closed"), None)


@dataclass(frozen=True)
class AtHand:
    """Records that this transaction has just put into rows, by id."""

    turns: Mapping[str, Turn]
    outcomes: Mapping[str, Outcome]


NOTHING = AtHand({}, {})


def gather(session: Session, episode_ids: Collection[str], at_hand: AtHand = NOTHING) -> Iterator[tuple[str, Whole]]:
    turns: dict[str, list[Turn]] = defaultdict(list)
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    rows = select(TurnRow.episode_id, TurnRow.turn_id, TurnRow.body).where(col(TurnRow.episode_id).in_(episode_ids))
    for episode_id, turn_id, body in session.exec(rows).all():
        turns[episode_id].append(at_hand.turns.get(turn_id) or Turn.decode(body))
    # Without the disposition as a condition: a server that has not counted its rows yet would look them all up by it.
    of_episode = col(OutcomeRow.episode_id).in_(episode_ids)
    told = select(OutcomeRow.episode_id, OutcomeRow.event_id, OutcomeRow.disposition, OutcomeRow.body).where(of_episode)
    for episode_id, event_id, disposition, body in session.exec(told).all():
        if disposition == Disposition.JOINED:
            outcomes[episode_id].append(at_hand.outcomes.get(event_id) or Outcome.decode(body))
    for episode_id, some in turns.items():
        yield episode_id, order(some, outcomes[episode_id])


def order(turns: list[Turn], outcomes: list[Outcome]) -> Whole:
    by_time = sorted(turns, key=lambda turn: (turn.started_at, turn.turn_id))
    first = by_time[0].started_at
    began = {turn.turn_id: turn.started_at for turn in turns}
    timed = ((event_time(o, first if o.turn_id is None else began[o.turn_id]), o) for o in outcomes)
    return Whole(tuple(by_time), tuple(sorted(timed, key=lambda pair: (pair[0], pair[1].event_id))))
