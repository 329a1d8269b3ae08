"""Everything that is there about some episodes, in few queries.

Enters: episode ids. Leaves: one `Gathered` for each that has a turn or an outcome, its rows locked for this transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from contracts.outcome import Outcome
from contracts.states import Disposition
from contracts.turn import Turn
from infra.db.query import Session, col, select
from infra.db.tables.ingest import EpisodeRow, OutcomeRow, TurnRow

_AT_ONCE = 400


@dataclass(frozen=True)
class Gathered:
    """Turns by (started_at, turn_id), outcomes in their total order. `row` None: no turn had come before.

    `new_turns`: at least one turn was not part of the episode yet.
    """

    episode_id: str
    row: EpisodeRow | None
    turns: tuple[Turn, ...]
    outcomes: tuple[tuple[OutcomeRow, Outcome], ...]
    new_turns: bool

    def joined(self) -> tuple[Outcome, ...]:
        return tuple(outcome for row, outcome in self.outcomes if row.disposition == Disposition.JOINED)


def gather(session: Session, episode_ids: Collection[str]) -> Iterator[Gathered]:
    wanted = sorted(episode_ids)
    for start in range(0, len(wanted), _AT_ONCE):
        yield from _gather(session, wanted[start : start + _AT_ONCE])


def _gather(session: Session, wanted: list[str]) -> Iterator[Gathered]:
    rows = {
        row.episode_id: row
        for row in session.exec(select(EpisodeRow).where(col(EpisodeRow.episode_id).in_(wanted)).with_for_update()).all()
    }
    turns: dict[str, list[Turn]] = defaultdict(list)
    unjoined: set[str] = set()
    for turn_row in session.exec(select(TurnRow).where(col(TurnRow.episode_id).in_(wanted))).all():
        turns[turn_row.episode_id].append(Turn.decode(turn_row.body))
        if not turn_row.joined:
            unjoined.add(turn_row.episode_id)
            turn_row.joined = True
            session.add(turn_row)
    outcomes: dict[str, list[tuple[OutcomeRow, Outcome]]] = defaultdict(list)
    for outcome_row in session.exec(select(OutcomeRow).where(col(OutcomeRow.episode_id).in_(wanted))).all():
        outcomes[outcome_row.episode_id].append((outcome_row, Outcome.decode(outcome_row.body)))
    for episode_id in wanted:
        yield Gathered(
            episode_id=episode_id,
            row=rows.get(episode_id),
            turns=tuple(sorted(turns[episode_id], key=lambda turn: (turn.started_at, turn.turn_id))),
            outcomes=tuple(sorted(outcomes[episode_id], key=lambda pair: pair[1].order)),
            new_turns=episode_id in unjoined,
        )
