"""When something happened, as far as a client's clock can be believed.

Enters: outcomes with two times, that of the client (which may lie by years) and ours. Leaves: one: the client's, but not before the
turn began that it is about, and never after we received it. An outcome that names no turn is about its episode, which began with
its first turn.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from contracts.outcome import Outcome
from infra.clock import from_ms

_NOTABLE = timedelta(seconds=1)
"""Clocks that differ by less are no news."""


def event_time(outcome: Outcome, began: datetime) -> datetime:
    return min(max(outcome.occurred_at, began), outcome.received_at)


def clamped(outcome: Outcome, began_ms: int) -> str | None:
    """The counter's name, where a clock was so wrong that it was not believed. Ahead of our own clock weighs more than behind the
    turn's, which may be another machine's."""
    if outcome.occurred_at - outcome.received_at > _NOTABLE:
        return "clocks.ahead"
    if from_ms(began_ms) - outcome.occurred_at > _NOTABLE:
        return "clocks.behind"
    return None
