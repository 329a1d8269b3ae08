"""A reward with its parts, and the tokens it pays for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contracts.record import Finite, Moment, Name, Record
from contracts.tokens import LogProbs, TokenIds
from contracts.turn import VersionSpan


class Part(Record):
    """What one extractor says. `value` None: it has nothing to say, which is not 0.

    `weight` 0 marks a part that is measured and not paid: gates may use it, training cannot reach for it.
    """

    name: Name
    value: Finite | None
    weight: Finite
    turn_id: Name | None = None
    evidence: tuple[Name, ...] = ()


class Reward(Record):
    """A pure function of (episode revision, spec): the same two give the same bits. `value` None: no feedback at all."""

    episode_id: Name
    revision: Annotated[int, Field(ge=1)]
    policy: Name
    spec: Name
    value: Finite | None
    parts: tuple[Part, ...]


class Segment(Record):
    """One turn of a trajectory as the learner sees it. `credit` is the reward that its completion tokens carry."""

    turn_id: Name
    prompt_ids: TokenIds
    completion_ids: TokenIds
    logps: LogProbs | None
    spans: tuple[VersionSpan, ...]
    temperature: Annotated[float, Field(ge=0.0)]
    trainable: bool
    credit: Finite


class Sample(Record):
    """A rewarded trajectory, ready to be claimed by one cycle. It is trained into a lineage at most once."""

    sample_id: Name
    revision: Annotated[int, Field(ge=1)]
    policy: Name
    subject: Name
    spec: Name
    reward: Finite
    group_key: Name | None
    segments: Annotated[tuple[Segment, ...], Field(min_length=1)]
    sampled_at: Moment
