"""One event as it travels: a CloudEvents 1.0 object, encoded once and never touched again.

Enters: a kind, what it is about, its fields. Leaves: the event's id and one line of JSON. Goes wrong: a naive time or a value
that JSON does not have raises, which the client turns into a count.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as _quote
from typing import Any, TypedDict

_STABLE = uuid.UUID("6f0e6a52-51d5-5b0c-9d0e-5a2f6d7f2c11")
_WITHHELD = "-withheld"
_VERSION = 7 << 76 | 2 << 62
_RANDOM = ((1 << 80) - 1) & ~(15 << 76 | 3 << 62)


class About(TypedDict, total=False):
    """What may be said of any event besides its own fields."""

    episode: str
    """The episode, for events of no single turn."""
    at: datetime
    """When it happened, with a time zone; default: now."""
    event_id: str
    """An id of your own. The same id counts once, however often it is told."""
    consent: bool
    """Overrides the client's; False sends nothing but that something happened."""
    policy: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An event that the collector did not take, and why. Sending it again would not help."""

    event: Mapping[str, Any]
    code: int
    reason: str
    detail: str


class NaiveTime(ValueError):
    """A time without a zone could be any of 24 hours."""


class NotJson(ValueError):
    """A value that JSON does not have: not a number, an object of the program."""


def new_id() -> str:
    """A UUID whose first 48 bits are the time (version 7), so that ids of a time lie together in an index."""
    number = int.from_bytes(os.urandom(10), "big") & _RANDOM | _VERSION | (time.time_ns() // 1_000_000) << 80
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def stable_id(*parts: str) -> str:
    """The same id for the same parts: a commit hook that runs twice tells one event, not two."""
    return str(uuid.uuid5(_STABLE, "\x00".join(parts)))


@dataclass(frozen=True, slots=True)
class Sender:
    """Who tells, as JSON, written once: an event costs the host program little more than its own words."""

    policy: str
    opening: str
    """Everything that is the same in each event, up to the id's value."""

    @classmethod
    def of(cls, source: str, policy: str) -> Sender:
        return cls(policy, f'{{"specversion":"1.0","source":{_quote(source)},"id":')


def encode(
    kind: str, turn: str | None, data: Mapping[str, Any] | None, about: About, sender: Sender, consent: bool
) -> tuple[str, bytes]:
    if about and not about.keys() <= About.__annotations__.keys():
        raise TypeError(f"an event has no {', '.join(sorted(about.keys() - About.__annotations__.keys()))}")
    event_id = about.get("event_id") or new_id()
    policy = about.get("policy") or sender.policy
    line = f'{sender.opening}{_quote(event_id)},"type":{_quote("slipstream." + kind)},"policy":{_quote(policy)}'
    if not about.get("consent", consent) or (turn is not None and turn.endswith(_WITHHELD)):
        return event_id, f'{line},"consent":false}}'.encode()  # and nothing of when, where or what
    line += f',"time":"{_moment(about.get("at"))}"'
    if turn is not None:
        line += f',"turnid":{_quote(turn)}'
    if (episode := about.get("episode")) is not None:
        line += f',"episodeid":{_quote(episode)}'
    if data:
        line += f',"data":{{{",".join([f"{_quote(name)}:{_value(value)}" for name, value in data.items()])}}}'
    return event_id, (line + "}").encode()


def _moment(at: datetime | None) -> str:
    if at is None:
        return datetime.now(UTC).isoformat()
    if at.tzinfo is None or at.utcoffset() is None:
        raise NaiveTime(f"at: expected a time with a zone, got {at!r}")
    return at.astimezone(UTC).isoformat()


def _value(value: Any) -> str:
    """The plain ones by hand: setting up an encoder takes longer than most events."""
    kind = type(value)
    if kind is str:
        return _quote(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if value is None:
        return "null"
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise NotJson(str(error)) from error
