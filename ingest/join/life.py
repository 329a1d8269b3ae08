"""Episodes while a transaction works on them.

Enters: episode ids. Leaves: their rows, locked in the order of their ids, with the turns that are known. What is changed here is
written back by `store`; nothing of it outlives the transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from contracts.states import EPISODE_NEXT, EpisodeState, move
from infra.clock import to_ms
from infra.db.insert import upsert
from infra.db.query import Session, among, col, select
from infra.db.tables.ingest import EpisodeRow, TurnRow
from ingest.join.batch import ToldTurn

_KEPT = ("policy", "subject", "state", "revision", "news_ms", "closed_by", "closed_ms")
_WHOLE = ("episode_id", "partition_number", *_KEPT)
_READ: Any = [getattr(EpisodeRow, name) for name in _WHOLE]


@dataclass
class Life:
    """`began_ms`: when each known turn began, by policy: a client may use one episode id for several. `news`: something
    joined in this transaction. `over`: a client said that this was it.

    `reread`: what had joined before has changed, so that times must be found anew from all of it.
    """

    episode_id: str
    partition_number: int
    policy: str
    subject: str
    state: EpisodeState
    revision: int
    news_ms: int
    closed_by: str | None
    closed_ms: int | None
    began_ms: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    news: bool = False
    over: bool = False
    reread: bool = False

    @property
    def consumed(self) -> bool:
        return self.state == EpisodeState.CONSUMED

    @property
    def is_closed(self) -> bool:
        return self.state == EpisodeState.CLOSED

    def began(self, policy: str, turn_id: str | None) -> int | None:
        """When the turn of this policy began, or its first one where none is named; None: not known."""
        turns = self.began_ms.get(policy, {})
        return min(turns.values(), default=None) if turn_id is None else turns.get(turn_id)

    def hear(self, at_ms: int) -> None:
        """Something that happened at a time is part of it now."""
        self.news = True
        self.news_ms = max(self.news_ms, at_ms)

    def close(self) -> None:
        if self.state == EpisodeState.OPEN:
            self.state = move(EPISODE_NEXT, EpisodeState.OPEN, EpisodeState.CLOSED)


def begin(told: ToldTurn) -> Life:
    """An episode that has just got its row, from one of its turns."""
    turn = told.turn
    return Life(
        turn.episode_id, told.partition, turn.policy, turn.subject, EpisodeState.OPEN, 0, to_ms(turn.started_at), None, None
    )


def lock(session: Session, episode_ids: Collection[str]) -> dict[str, Life]:
    """Those that exist. A turn that another transaction is about to commit cannot be seen yet, but its episode's row can."""
    if not episode_ids:
        return {}
    wanted = select(*_READ).where(among(col(EpisodeRow.episode_id), episode_ids)).order_by(col(EpisodeRow.episode_id))
    lives = {row[0]: _life(*row) for row in session.execute(wanted.with_for_update()).all()}
    turns = select(TurnRow.episode_id, TurnRow.policy, TurnRow.turn_id, TurnRow.started_ms)
    for episode_id, policy, turn_id, started_ms in session.exec(turns.where(among(col(TurnRow.episode_id), lives))).all():
        lives[episode_id].began_ms[policy][turn_id] = started_ms
    return lives


def _life(episode_id: str, partition_number: int, policy: str, subject: str, state: str, *rest: Any) -> Life:
    return Life(episode_id, partition_number, policy, subject, EpisodeState(state), *rest)


def store(session: Session, lives: Iterable[Life]) -> None:
    upsert(session, EpisodeRow, [row_of(life) for life in lives], _KEPT)


def row_of(life: Life) -> dict[str, object]:
    return {name: getattr(life, name) for name in _WHOLE}
