"""What the service made of a replay, read from its tables.

Enters: episode ids and event ids of the replay. Leaves: the joined episodes at their newest revision, and how many events are still
on their way. Nothing is computed from the recorded file here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from contracts.episode import Episode
from contracts.states import Disposition
from infra.db.query import Session, col, func, select
from infra.db.tables.ingest import OutcomeRow, RevisionRow

_AT_ONCE = 400


def settled(session: Session, event_ids: Collection[str]) -> int:
    """How many of these events have been joined, or came after their episode had been trained on."""
    return sum(
        session.exec(
            select(func.count())
            .select_from(OutcomeRow)
            .where(
                col(OutcomeRow.event_id).in_(some),
                col(OutcomeRow.disposition).in_((Disposition.JOINED, Disposition.LATE)),
            )
        ).one()
        for some in _chunks(event_ids)
    )


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
