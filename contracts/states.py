"""Lifecycles as tables, and the one function that moves along them.

Enters: where a thing is and where it should go. Leaves: the new state, or `IllegalMove` with the steps that exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from contracts.errors import IllegalMove


class CheckpointState(StrEnum):
    """Where a version stands on its way to traffic."""

    SEALED = "sealed"
    BENCH = "bench"
    CANARY = "canary"
    LIVE = "live"
    RETIRED = "retired"
    REJECTED = "rejected"
    ROLLED_BACK = "rolled_back"


class EpisodeState(StrEnum):
    """OPEN gathers outcomes, CLOSED has been published (each later outcome revises it), CONSUMED has been trained on."""

    OPEN = "open"
    CLOSED = "closed"
    CONSUMED = "consumed"


class SampleState(StrEnum):
    """READY waits, CLAIMED is in a cycle that runs, CONSUMED is in a sealed checkpoint, the last two are out, with a reason."""

    READY = "ready"
    CLAIMED = "claimed"
    CONSUMED = "consumed"
    EXCLUDED = "excluded"
    QUARANTINED = "quarantined"


class Disposition(StrEnum):
    """What became of an event that somebody sent. Exactly one of these holds for each event id."""

    WAITING = "waiting"
    JOINED = "joined"
    LATE = "late"
    REFUSED = "refused"


class CycleState(StrEnum):
    """One run of the learner. SKIPPED: a step that must not be taken was not taken; the reason is on the row."""

    RUNNING = "running"
    SEALED = "sealed"
    SKIPPED = "skipped"
    ABANDONED = "abandoned"


State = TypeVar("State", bound=StrEnum)
Table = Mapping[State, frozenset[State]]

CHECKPOINT_NEXT: Table[CheckpointState] = {
    CheckpointState.SEALED: frozenset({CheckpointState.BENCH, CheckpointState.REJECTED}),
    CheckpointState.BENCH: frozenset({CheckpointState.CANARY, CheckpointState.LIVE, CheckpointState.REJECTED}),
    CheckpointState.CANARY: frozenset({CheckpointState.LIVE, CheckpointState.ROLLED_BACK}),
    CheckpointState.LIVE: frozenset({CheckpointState.RETIRED}),
    CheckpointState.RETIRED: frozenset(),
    CheckpointState.REJECTED: frozenset(),
    CheckpointState.ROLLED_BACK: frozenset(),
}

EPISODE_NEXT: Table[EpisodeState] = {
    EpisodeState.OPEN: frozenset({EpisodeState.CLOSED}),
    EpisodeState.CLOSED: frozenset({EpisodeState.CONSUMED}),
    EpisodeState.CONSUMED: frozenset(),
}

SAMPLE_NEXT: Table[SampleState] = {
    SampleState.READY: frozenset({SampleState.CLAIMED, SampleState.EXCLUDED, SampleState.QUARANTINED}),
    SampleState.CLAIMED: frozenset({SampleState.READY, SampleState.CONSUMED, SampleState.EXCLUDED, SampleState.QUARANTINED}),
    SampleState.CONSUMED: frozenset(),
    SampleState.EXCLUDED: frozenset(),
    SampleState.QUARANTINED: frozenset(),
}

OUTCOME_NEXT: Table[Disposition] = {
    Disposition.WAITING: frozenset({Disposition.JOINED, Disposition.LATE, Disposition.REFUSED}),
    # An orphan whose turn turns up after all is joined after all.
    Disposition.REFUSED: frozenset({Disposition.JOINED, Disposition.LATE}),
    Disposition.JOINED: frozenset(),
    Disposition.LATE: frozenset(),
}

CYCLE_NEXT: Table[CycleState] = {
    CycleState.RUNNING: frozenset({CycleState.SEALED, CycleState.SKIPPED, CycleState.ABANDONED}),
    CycleState.SEALED: frozenset(),
    CycleState.SKIPPED: frozenset(),
    CycleState.ABANDONED: frozenset(),
}


def move(table: Table[State], now: State, to: State) -> State:
    """The only way a lifecycle advances. Raises `IllegalMove` where the table has no such step."""
    if to not in table[now]:
        steps = ", ".join(sorted(table[now])) or "nothing, it is final"
        raise IllegalMove(f"{now} cannot become {to}; from {now} it can become {steps}")
    return to
