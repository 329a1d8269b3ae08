"""Turns and outcomes joined, at a revision. A revision never changes; what arrives later makes the next one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.outcome import Outcome
from contracts.record import Moment, Name, Record
from contracts.turn import Turn

ClosedBy = Literal["closed", "quiet"]


class Episode(Record):
    """`turns` by (started_at, turn_id), `outcomes` in their total order: arrival order leaves no trace."""

    episode_id: Name
    policy: Name
    revision: Annotated[int, Field(ge=1)]
    subject: Name
    turns: Annotated[tuple[Turn, ...], Field(min_length=1)]
    outcomes: tuple[Outcome, ...]
    closed_by: ClosedBy
    closed_at: Moment


class EpisodeClosed(Record):
    """What travels on the topic: the pointer; the rows hold the rest."""

    episode_id: Name
    policy: Name
    revision: Annotated[int, Field(ge=1)]
