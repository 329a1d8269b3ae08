"""A new revision: the whole episode in a row that never changes, and a pointer on the topic."""

from __future__ import annotations

from contracts.episode import Episode, EpisodeClosed
from contracts.topics import EPISODES
from infra.clock import from_ms
from infra.db import outbox
from infra.db.query import Session
from infra.db.tables.ingest import EpisodeRow, RevisionRow
from ingest.join.gather import Gathered

OWNER = "joiner"


def publish(session: Session, found: Gathered, row: EpisodeRow) -> None:
    assert row.closed_by in ("closed", "quiet") and row.closed_ms is not None
    row.revision += 1
    episode = Episode(
        episode_id=row.episode_id,
        policy=row.policy,
        revision=row.revision,
        subject=row.subject,
        turns=found.turns,
        outcomes=found.joined(),
        closed_by="closed" if row.closed_by == "closed" else "quiet",
        closed_at=from_ms(row.closed_ms),
    )
    session.add(row)
    session.add(RevisionRow(episode_id=row.episode_id, revision=row.revision, policy=row.policy, body=episode.model_dump_json()))
    pointer = EpisodeClosed(episode_id=row.episode_id, policy=row.policy, revision=row.revision)
    outbox.post(session, OWNER, EPISODES, pointer)
