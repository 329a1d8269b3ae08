"""All there is of some episodes, in an order that does not depend on how it came.

Enters: ids of episodes that have a turn. Leaves: for each its turns by (started_at, turn_id) and its joined outcomes by (time,
event_id). What the caller has at hand is not decoded again, and nothing is encoded: a record's text is what travelled.
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
from infra.db.query import Session, among, col, select
from infra.db.tables.ingest import OutcomeRow, TurnRow
from ingest.join.times import event_time

Timed = tuple[Moment, Outcome, str]
"""When it happened, what, and its text."""


@dataclass(frozen=True)
class Whole:
    turns: tuple[tuple[Turn, str], ...]
    timed: tuple[Timed, ...]

    @property
    def first(self) -> Turn:
        return self.turns[0][0]

    @property
    def last_ms(self) -> int:
        """When the last thing happened."""
        return to_ms(max([self.turns[-1][0].started_at, *(at for at, _, _ in self.timed[-1:])]))

    @property
    def closed_ms(self) -> int | None:
        """When a client first said that it is over; None: none did."""
        return next((to_ms(at) for at, outcome, _ in self.timed if outcome.happening.kind == "closed"), None)


@dataclass(frozen=True)
class AtHand:
    """What this transaction has read already, by id."""

    turns: Mapping[str, Turn]
    outcomes: Mapping[str, Outcome]


NOTHING = AtHand({}, {})


def gather(session: Session, episode_ids: Collection[str], at_hand: AtHand = NOTHING) -> Iterator[tuple[str, Whole]]:
    turns: dict[str, list[tuple[Turn, str]]] = defaultdict(list)
    outcomes: dict[str, list[tuple[Outcome, str]]] = defaultdict(list)
    rows = select(TurnRow.episode_id, TurnRow.turn_id, TurnRow.body).where(among(col(TurnRow.episode_id), episode_ids))
    for episode_id, turn_id, body in session.exec(rows).all():
        turns[episode_id].append((at_hand.turns.get(turn_id) or Turn.decode(body), body))
    # Without the disposition as a condition: a server that has not counted its rows yet would look them all up by it.
    of_episode = among(col(OutcomeRow.episode_id), episode_ids)
    told = select(OutcomeRow.episode_id, OutcomeRow.event_id, OutcomeRow.disposition, OutcomeRow.body).where(of_episode)
    for episode_id, event_id, disposition, body in session.exec(told).all():
        if disposition == Disposition.JOINED:
            outcomes[episode_id].append((at_hand.outcomes.get(event_id) or Outcome.decode(body), body))
    for episode_id, some in turns.items():
        yield episode_id, order(some, outcomes[episode_id])


def order(turns: list[tuple[Turn, str]], outcomes: list[tuple[Outcome, str]]) -> Whole:
    by_time = sorted(turns, key=lambda pair: (pair[0].started_at, pair[0].turn_id))
    first = by_time[0][0].started_at
    began = {turn.turn_id: turn.started_at for turn, _ in turns}
    timed = [(event_time(o, first if o.turn_id is None else began[o.turn_id]), o, body) for o, body in outcomes]
    return Whole(tuple(by_time), tuple(sorted(timed, key=lambda one: (one[0], one[1].event_id))))
