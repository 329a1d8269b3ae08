"""One thing that happened to a turn or an episode: what a person did, told by a client.

The body of an outcome is a union discriminated by `kind`; a new kind is one class here and an entry in `Happening`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from contracts.ids import episode_of
from contracts.record import Moment, Name, Record, Share

Characters = Annotated[int, Field(ge=0, le=10_000_000, description="characters")]
Seconds = Annotated[float, Field(ge=0.0, le=10_000_000.0, allow_inf_nan=False, description="seconds")]


class Shown(Record):
    """The answer was on screen. A suggestion that is never shown has no acceptance to speak of."""

    kind: Literal["shown"] = "shown"


class Accepted(Record):
    kind: Literal["accepted"] = "accepted"
    characters: Characters
    whole: bool = True


class Rejected(Record):
    kind: Literal["rejected"] = "rejected"


class Edited(Record):
    """Accepted text was changed; `surviving` is the share of its characters that is still there."""

    kind: Literal["edited"] = "edited"
    surviving: Share


class Reverted(Record):
    kind: Literal["reverted"] = "reverted"


class Persisted(Record):
    """A check after a while: how much of the accepted text is still in the file."""

    kind: Literal["persisted"] = "persisted"
    after_s: Seconds
    surviving: Share


class Closed(Record):
    """Nothing more is to be expected for this episode."""

    kind: Literal["closed"] = "closed"


Happening = Annotated[
    Shown | Accepted | Rejected | Edited | Reverted | Persisted | Closed,
    Field(discriminator="kind"),
]


class Outcome(Record):
    """`event_id` counts once, whatever else differs. `occurred_at` is the client's clock and may lie; `received_at` is ours."""

    event_id: Name
    policy: Name
    episode_id: Name
    turn_id: Name | None = None
    occurred_at: Moment
    received_at: Moment
    happening: Happening

    @model_validator(mode="after")
    def _of_its_episode(self) -> Self:
        if self.turn_id is not None and episode_of(self.turn_id) != self.episode_id:
            raise ValueError(f"turn_id {self.turn_id!r} belongs to another episode than {self.episode_id!r}")
        return self

    @property
    def order(self) -> tuple[Moment, str]:
        """Total order of what happened: a later mind replaces an earlier one, ids break ties."""
        return (min(self.occurred_at, self.received_at), self.event_id)


class Refusal(Record):
    """An event that was not taken, kept so that nothing disappears without a reason and a count.

    `refusal_id` is the event's own id where it had a usable one, else a digest of its bytes: resending it counts once.
    """

    refusal_id: Name
    event_id: Name | None
    policy: Name | None
    reason: Name
    detail: str
    received_at: Moment
