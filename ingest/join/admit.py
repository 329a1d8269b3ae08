"""What may be kept at all: the one door through which turns and outcomes come into the tables.

Enters: a batch. Leaves: the batch without turns of people who did not agree, without what is about people who were deleted, and
without events whose rows have gone already. Each is counted; nothing else is kept of it.
"""

from __future__ import annotations

from infra.db.counters import Tally
from infra.db.query import Session
from infra.people.screen import screen
from ingest.join.batch import Batch


def admit(session: Session, batch: Batch, tally: Tally, now_ms: int) -> None:
    for turn_id, told in list(batch.turns.items()):
        if not told.turn.consent:
            tally[(told.turn.policy, "turns.no_consent")] += 1
            del batch.turns[turn_id]
    turns = {turn_id: told.turn for turn_id, told in batch.turns.items()}
    outcomes = {event_id: told.outcome for event_id, told in batch.outcomes.items()}
    out = screen(session, turns, outcomes, batch.refusals, tally, now_ms)
    for turn_id in out.turns:
        del batch.turns[turn_id]
    for event_id in out.outcomes:
        del batch.outcomes[event_id]
    for refusal_id in out.refusals:
        del batch.refusals[refusal_id]
