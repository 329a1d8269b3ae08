"""What the service made of a replay, read from its tables.

Enters: episode ids and event ids of the replay. Leaves: the joined episodes at their newest revision, and what became of the
events; the rest is still on its way. Nothing is computed from the recorded file here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from contracts.episode import Episode
from contracts.states import Disposition
from infra.db.query import Session, col, func, select
from infra.db.tables.ingest import OutcomeRow, RefusalRow, RevisionRow
from infra.db.tables.people import GoneEventRow
from infra.people.gone import digest

_AT_ONCE = 400


@dataclass(frozen=True)
class Fates:
    """`joined`: also those that came after their episode had been trained on. `refused`: by the collector, or without a turn.

    `gone`: counted, and nothing else of them is kept, because the person was deleted or retention let the rows go.
    """

    joined: int
    refused: int
    gone: int

    @property
    def at_rest(self) -> int:
        return self.joined + self.refused + self.gone


def fates(session: Session, event_ids: Collection[str]) -> Fates:
    joined = refused = gone = 0
    for some in _chunks(event_ids):
        mine = col(OutcomeRow.event_id).in_(some)
        query = select(OutcomeRow.disposition, func.count()).where(mine).group_by(col(OutcomeRow.disposition))
        by_fate = dict(session.exec(query).all())
        joined += by_fate.get(Disposition.JOINED, 0) + by_fate.get(Disposition.LATE, 0)
        refused += by_fate.get(Disposition.REFUSED, 0)
        turned_away = select(func.count()).select_from(RefusalRow).where(col(RefusalRow.event_id).in_(some))
        refused += session.exec(turned_away).one()
        let_go = select(func.count()).select_from(GoneEventRow).where(col(GoneEventRow.refused_as).is_(None))
        gone += session.exec(let_go.where(col(GoneEventRow.digest).in_([digest(one) for one in some]))).one()
    return Fates(joined, refused, gone)


def episodes(session: Session, episode_ids: Collection[str]) -> Iterator[Episode]:
    """The newest revision of each that has one."""
    for some in _chunks(episode_ids):
        newest = (
            select(RevisionRow.episode_id, func.max(RevisionRow.revision).label("revision"))
            .where(col(RevisionRow.episode_id).in_(some))
            .group_by(RevisionRow.episode_id)
            .subquery()
        )
        query = select(RevisionRow.body).join(
            newest,
            (col(RevisionRow.episode_id) == newest.c.episode_id) & (col(RevisionRow.revision) == newest.c.revision),
        )
        for body in session.exec(query):
            yield Episode.decode(body)


def _chunks(ids: Collection[str]) -> Iterator[list[str]]:
    found = sorted(ids)
    for start in range(0, len(found), _AT_ONCE):
        yield found[start : start + _AT_ONCE]
