"""A batch as the joiner takes it: each id once, with where it lay and how it was told.

Enters: deliveries. Leaves: turns, outcomes and refusals by id. Of several tellings of one outcome the one received first counts,
and of those received at once the one whose text sorts first: which of them the log brought first leaves no trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from contracts.outcome import Outcome, Refusal
from contracts.record import Moment
from contracts.turn import Turn
from infra.stream import Delivery


@dataclass(frozen=True, slots=True)
class ToldTurn:
    """`body` is the record as it travelled."""

    turn: Turn
    partition: int
    body: str


@dataclass(frozen=True, slots=True)
class ToldOutcome:
    """`body` is the record as it travelled."""

    outcome: Outcome
    partition: int
    body: str

    @property
    def precedence(self) -> tuple[Moment, str]:
        return precedence(self.outcome, self.body)


def precedence(outcome: Outcome, body: str) -> tuple[Moment, str]:
    """Of two tellings the smaller counts."""
    return (outcome.received_at, body)


@dataclass
class Batch:
    """`repeats`: tellings beyond the first of their id in this batch, by policy."""

    turns: dict[str, ToldTurn] = field(default_factory=dict)
    outcomes: dict[str, ToldOutcome] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    repeats: Counter[str] = field(default_factory=Counter)

    def episodes(self) -> set[str]:
        return {told.turn.episode_id for told in self.turns.values()} | {told.outcome.episode_id for told in self.outcomes.values()}


def sort_out(deliveries: Sequence[Delivery]) -> Batch:
    batch = Batch()
    for delivery in deliveries:
        record, message = delivery.record, delivery.message
        if isinstance(record, Outcome):
            told = ToldOutcome(record, message.partition, message.value.decode())
            before = batch.outcomes.setdefault(record.event_id, told)
            if before is not told:
                batch.repeats[record.policy] += 1
                if told.precedence < before.precedence:
                    batch.outcomes[record.event_id] = told
        elif isinstance(record, Turn):
            batch.turns.setdefault(record.turn_id, ToldTurn(record, message.partition, message.value.decode()))
        elif isinstance(record, Refusal):
            batch.refusals.setdefault(record.refusal_id, record)
    return batch
