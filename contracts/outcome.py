"""One thing that happened to a turn or an episode: what a person did, told by a client.

The body of an outcome is a union discriminated by `kind`; a new kind is one class here and an entry in `Happening` and `KINDS`.
A kind that is not in the list is `Unrecognised`: kept, not refused. Units are in the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from contracts.ids import episode_of
from contracts.record import Moment, Name, Record, Share

Characters = Annotated[int, Field(ge=0, le=10_000_000, description="characters")]
Count = Annotated[int, Field(ge=0, le=10_000_000)]
Milliseconds = Annotated[float, Field(ge=0.0, le=1e9, allow_inf_nan=False, description="milliseconds")]
Seconds = Annotated[float, Field(ge=0.0, le=10_000_000.0, allow_inf_nan=False, description="seconds")]


class Shown(Record):
    """The answer was on screen. A suggestion that is never shown has no acceptance to speak of."""

    kind: Literal["shown"] = "shown"


class Replayed(Record):
    """The same answer came on screen again (out of a cache, or by browsing back): no further exposure."""

    kind: Literal["replayed"] = "replayed"


class Accepted(Record):
    """Taken over: all of it, or (`whole` false) the first `characters` of it."""

    kind: Literal["accepted"] = "accepted"
    characters: Characters
    whole: bool = True


class Rejected(Record):
    """Turned down on purpose: Escape, undo of the preview, a cross."""

    kind: Literal["rejected"] = "rejected"


class Dismissed(Record):
    """It went away without a decision: the cursor moved, the window lost focus, another answer took its place."""

    kind: Literal["dismissed"] = "dismissed"


class TypedThrough(Record):
    """Not accepted, yet typed by hand: `characters` of the answer, or None where the client does not count them."""

    kind: Literal["typed_through"] = "typed_through"
    characters: Characters | None = None


class Copied(Record):
    """Text of the answer went to the clipboard."""

    kind: Literal["copied"] = "copied"
    characters: Characters | None = None


class Edited(Record):
    """Accepted text was changed; `surviving` is the share of its characters that is still there."""

    kind: Literal["edited"] = "edited"
    surviving: Share


class Reverted(Record):
    """Accepted text was taken out again."""

    kind: Literal["reverted"] = "reverted"


class Persisted(Record):
    """A check after a while: how much of the accepted text is still in the file."""

    kind: Literal["persisted"] = "persisted"
    after_s: Seconds
    surviving: Share


class Committed(Record):
    """Accepted text is part of a commit; `surviving` is its share that made it there."""

    kind: Literal["committed"] = "committed"
    surviving: Share | None = None


class Merged(Record):
    """Accepted text reached the main line."""

    kind: Literal["merged"] = "merged"
    surviving: Share | None = None


class FollowUp(Record):
    """What the person wrote next, in the same conversation."""

    kind: Literal["follow_up"] = "follow_up"
    text: Annotated[str, Field(max_length=65_536, description="characters")]


class Thumbs(Record):
    """An explicit opinion; a later one replaces an earlier one."""

    kind: Literal["thumbs"] = "thumbs"
    up: bool


class ToolResult(Record):
    """A tool that the answer called. `valid` false: the call itself was malformed; `error`: the kind of failure, if any."""

    kind: Literal["tool_result"] = "tool_result"
    tool: Name
    valid: bool
    error: Name | None = None


class TestResult(Record):
    """Tests that ran on the changed code. `error`: they could not run at all, then both counts are None."""

    __test__ = False
    kind: Literal["test_result"] = "test_result"
    passed: Count | None
    failed: Count | None
    error: Name | None = None


class BuildResult(Record):
    """A compiler's or linter's verdict on the changed code."""

    kind: Literal["build_result"] = "build_result"
    ok: bool
    errors: Count | None = None


class Latency(Record):
    """How long the person waited for the first characters, as the client saw it."""

    kind: Literal["latency"] = "latency"
    first_ms: Milliseconds
    last_ms: Milliseconds | None = None


class Failed(Record):
    """The client could not use the answer: a time-out, a broken stream, an answer that does not apply."""

    kind: Literal["error"] = "error"
    error: Name


class Closed(Record):
    """Nothing more is to be expected for this episode."""

    kind: Literal["closed"] = "closed"


class Unrecognised(Record):
    """A kind that this version does not know, from a newer client: kept as it came, counted, and read again after an update."""

    model_config = ConfigDict(extra="allow")

    kind: Name


KINDS: Mapping[str, type[Record]] = {
    str(happening.model_fields["kind"].default): happening
    for happening in (
        *(Shown, Replayed, Accepted, Rejected, Dismissed, TypedThrough, Copied, Edited, Reverted, Persisted, Committed, Merged),
        *(FollowUp, Thumbs, ToolResult, TestResult, BuildResult, Latency, Failed, Closed),
    )
}
"""Every kind that this version understands."""

_UNKNOWN = "unrecognised"


def _tag(happening: Any) -> str | None:
    kind = happening.get("kind") if isinstance(happening, dict) else getattr(happening, "kind", None)
    if not isinstance(kind, str):
        return None
    return kind if kind in KINDS else _UNKNOWN


Happening = Annotated[
    Annotated[Shown, Tag("shown")]
    | Annotated[Replayed, Tag("replayed")]
    | Annotated[Accepted, Tag("accepted")]
    | Annotated[Rejected, Tag("rejected")]
    | Annotated[Dismissed, Tag("dismissed")]
    | Annotated[TypedThrough, Tag("typed_through")]
    | Annotated[Copied, Tag("copied")]
    | Annotated[Edited, Tag("edited")]
    | Annotated[Reverted, Tag("reverted")]
    | Annotated[Persisted, Tag("persisted")]
    | Annotated[Committed, Tag("committed")]
    | Annotated[Merged, Tag("merged")]
    | Annotated[FollowUp, Tag("follow_up")]
    | Annotated[Thumbs, Tag("thumbs")]
    | Annotated[ToolResult, Tag("tool_result")]
    | Annotated[TestResult, Tag("test_result")]
    | Annotated[BuildResult, Tag("build_result")]
    | Annotated[Latency, Tag("latency")]
    | Annotated[Failed, Tag("error")]
    | Annotated[Closed, Tag("closed")]
    | Annotated[Unrecognised, Tag(_UNKNOWN)],
    Discriminator(_tag, custom_error_type="no_kind", custom_error_message="expected an object with a `kind`"),
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


NO_CONSENT = "no_consent"
"""The reason of refusals of which nothing but the number is kept."""


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
