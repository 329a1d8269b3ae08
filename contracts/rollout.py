"""Which version answers which share of traffic, and why. The registry writes it, serving obeys it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from contracts.record import Moment, Name, Record, Share
from contracts.states import CheckpointState


class Rollout(Record):
    """The routing of one policy. `revision` only grows: a table that arrives late never replaces a newer one.

    `candidate` with `share` 0 is loaded and answers only those who ask for it by name (bench). The experiment's name salts the
    split; it changes with each candidate, and `step` numbers the ramp so that no test pools across shares.
    """

    policy: Name
    revision: Annotated[int, Field(ge=1)]
    champion: Name
    candidate: Name | None = None
    candidate_state: CheckpointState | None = None
    experiment: Name | None = None
    step: Annotated[int, Field(ge=0)] | None = None
    share: Share = 0.0
    reason: str
    at: Moment

    @model_validator(mode="after")
    def _candidate_or_none(self) -> Self:
        if self.candidate is None and self.share > 0:
            raise ValueError(f"share is {self.share} although there is no candidate")
        if self.candidate is not None and (self.experiment is None or self.candidate_state is None):
            raise ValueError("a candidate needs an experiment and a candidate_state")
        return self
