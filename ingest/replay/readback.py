"""What the service made of a replay, read from its tables.

Enters: episode ids and event ids of the replay. Leaves: the joined episodes at their newest revision, and how many events are still
on their way. Nothing is computed from the recorded file here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from contracts.episode import Episode
from contracts.states import Disposition
from infra.db.query import Session, col, func, select
from infra.db.tables.ingest import OutcomeRow, RefusalRow, RevisionRow

_AT_ONCE = 400


@dataclass(frozen=True)
class Fates:
    """`joined`: also those that came after their episode had been trained on. `refused`: by the collector, or without a turn."""

    joined: int
    refused: int

    @property
    def at_rest(self) -> int:
        return self.joined + self.refused


def fates(session: Session, event_ids: Collection[str]) -> Fates:
    joined = refused = 0
    for some in _chunks(event_ids):
        mine = col(OutcomeRow.event_id).in_(some)
        query = select(OutcomeRow.disposition, func.count()).where(mine).group_by(col(OutcomeRow.disposition))
        by_fate = dict(session.exec(query).all())
        joined += by_fate.get(Disposition.JOINED, 0) + by_fate.get(Disposition.LATE, 0)
        refused += by_fate.get(Disposition.REFUSED, 0)
        turned_away = select(func.count()).select_from(RefusalRow).where(col(RefusalRow.event_id).in_(some))
        refused += session.exec(turned_away).one()
    return Fates(joined, refused)


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
