"""A new revision: the whole episode in a row that never changes, and a pointer on the topic.

Enters: episodes with news. Leaves: rows and promises. What a revision says follows from the set of turns and outcomes that joined,
never from the order in which they came; `closed_at` is when a client said so, or the end of the quiet window.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from contracts.episode import EpisodeClosed
from contracts.policy import Policy
from contracts.topics import EPISODES
from infra.clock import from_ms
from infra.db import outbox
from infra.db.insert import insert_new
from infra.db.query import Session
from infra.db.tables.ingest import RevisionRow
from ingest.join.life import Life
from ingest.join.whole import NOTHING, AtHand, Whole, gather

OWNER = "joiner"


def publish(
    session: Session, policies: Mapping[str, Policy], lives: Collection[Life], now_ms: int, at_hand: AtHand = NOTHING
) -> None:
    """Bring each up to date with what joined, and make a revision of those that are closed."""
    by_id = {life.episode_id: life for life in lives}
    episodes = []
    for episode_id, whole in gather(session, list(by_id), at_hand) if by_id else ():
        life = by_id[episode_id]
        _update(life, whole, policies)
        if life.closed_by is not None:
            life.revision += 1
            episodes.append((life, _episode(life, whole)))
    rows = [
        {
            "episode_id": life.episode_id,
            "revision": life.revision,
            "policy": life.policy,
            "published_ms": now_ms,
            "body": body,
        }
        for life, body in episodes
    ]
    if len(insert_new(session, RevisionRow, rows)) < len(rows):
        raise AssertionError("a revision was there already although its episode is locked")
    pointers = [EpisodeClosed(episode_id=life.episode_id, policy=life.policy, revision=life.revision) for life, _ in episodes]
    outbox.post_all(session, OWNER, EPISODES, pointers)


def _update(life: Life, whole: Whole, policies: Mapping[str, Policy]) -> None:
    first = whole.first
    life.policy, life.subject, life.news_ms = first.policy, first.subject, whole.last_ms
    if whole.closed_ms is not None:
        life.close()
        life.closed_by, life.closed_ms = "closed", whole.closed_ms
    elif life.is_closed:
        quiet = policies.get(life.policy)
        life.closed_by = "quiet"
        life.closed_ms = life.news_ms + quiet_ms(quiet) if quiet else life.closed_ms or life.news_ms


def quiet_ms(policy: Policy) -> int:
    return int(policy.quiet_seconds * 1000)


def _episode(life: Life, whole: Whole) -> str:
    """The record `Episode`, put together from the texts of its parts."""
    assert life.closed_ms is not None
    head = {"episode_id": life.episode_id, "policy": life.policy, "revision": life.revision, "subject": life.subject}
    tail = {"closed_by": life.closed_by, "closed_at": from_ms(life.closed_ms).isoformat()}
    turns = ",".join(body for _, body in whole.turns)
    outcomes = ",".join(body for _, _, body in whole.timed)
    return f'{json.dumps(head)[:-1]},"turns":[{turns}],"outcomes":[{outcomes}],{json.dumps(tail)[1:]}'
