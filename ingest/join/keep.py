"""Rows from what was told. Each answers which of them are new; the rest was there before and stays as it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from contracts.outcome import NO_CONSENT, Refusal
from contracts.states import Disposition
from infra.clock import to_ms
from infra.db.counters import Tally
from infra.db.insert import insert_new
from infra.db.query import Session
from infra.db.tables.ingest import EpisodeRow, OutcomeRow, RefusalRow, TurnRow
from infra.people.gone import NOBODY, counter_of
from ingest.join.batch import ToldOutcome, ToldTurn
from ingest.join.life import begin, row_of


def keep_turns(session: Session, turns: Iterable[ToldTurn], now_ms: int) -> set[str]:
    rows = [
        {
            "turn_id": told.turn.turn_id,
            "episode_id": told.turn.episode_id,
            "subject": told.turn.subject,
            "policy": told.turn.policy,
            "version": told.turn.version,
            "arm": told.turn.arm,
            "started_ms": to_ms(told.turn.started_at),
            "received_ms": now_ms,
            "body": told.body,
        }
        for told in turns
    ]
    return insert_new(session, TurnRow, rows)


def keep_outcomes(session: Session, told: Mapping[str, ToldOutcome], fates: Mapping[str, Disposition]) -> set[str]:
    rows = [
        {
            "event_id": event_id,
            "episode_id": each.outcome.episode_id,
            "turn_id": each.outcome.turn_id,
            "policy": each.outcome.policy,
            "kind": each.outcome.happening.kind,
            "disposition": fates[event_id],
            "reason": None,
            "partition_number": each.partition,
            "received_ms": to_ms(each.outcome.received_at),
            "body": each.body,
        }
        for event_id, each in told.items()
    ]
    return insert_new(session, OutcomeRow, rows)


def keep_refusals(session: Session, refusals: Collection[Refusal], tally: Tally) -> None:
    """Of what was told without consent the number, of the rest a row each."""
    kept = [refusal for refusal in refusals if refusal.reason != NO_CONSENT]
    withheld = counter_of(Disposition.REFUSED, NO_CONSENT)
    tally.update((refusal.policy or NOBODY, withheld) for refusal in refusals if refusal.reason == NO_CONSENT)
    rows = [
        {
            "refusal_id": refusal.refusal_id,
            "event_id": refusal.event_id,
            "policy": refusal.policy,
            "reason": refusal.reason,
            "detail": refusal.detail.replace("\x00", "\N{SYMBOL FOR NULL}"),  # PostgreSQL's text has no such character
            "received_ms": to_ms(refusal.received_at),
        }
        for refusal in kept
    ]
    insert_new(session, RefusalRow, rows)


def begin_episodes(session: Session, first: Mapping[str, ToldTurn]) -> set[str]:
    """Rows for episodes that have none, each from one of its turns."""
    return insert_new(session, EpisodeRow, [row_of(begin(told)) for told in first.values()])
