"""One CloudEvent of a client becomes an `Outcome`, or a `Refusal` that says which attribute was wrong and what was expected.

Enters: the piece of a body that holds an event and the moment it was received. Leaves: `Judged`; nothing is raised and nothing
disappears. The client's clock is kept as it was told; the order of outcomes never trusts it beyond the moment of receipt. A field
of a newer client's that this release does not know is left out, and the note says so.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cloudevents.core.exceptions import CloudEventValidationError, InvalidAttributeTypeError, InvalidAttributeValueError
from cloudevents.core.v1.event import CloudEvent
from pydantic import ValidationError

from contracts.errors import Poison
from contracts.ids import episode_of, is_withheld
from contracts.outcome import KINDS, NO_CONSENT, Outcome, Refusal
from infra.people.scan import withhold
from ingest.collect.pieces import Piece
from ingest.collect.values import is_text, unfit

PREFIX = "slipstream."
REQUIRED = ("specversion", "id", "source", "type")

_AHEAD = timedelta(minutes=1)
"""Clocks that are ahead of ours by less are not worth a note."""

_NAMED = 8
"""So many of the fields that were left out are named."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
_LEAP = re.compile(r"^(.{10}.\d\d:\d\d:)60")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ATTRIBUTES = {"event_id": "id", "turn_id": "turnid", "episode_id": "episodeid", "occurred_at": "time", "happening": "data"}


@dataclass(frozen=True, slots=True)
class Judged:
    """`event_id`: as the client wrote it, for the answer. `code` is HTTP's word for it. `note`: taken, but not as it was told."""

    event_id: str | None
    record: Outcome | Refusal
    code: int = 202
    note: str | None = None


class _Refused(Exception):
    def __init__(self, code: int, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.reason = reason
        self.detail = detail


def decode(piece: Piece, received_at: datetime, policies: Collection[str], max_bytes: int) -> Judged:
    event = piece.value
    try:
        if piece.fault is not None:
            raise _Refused(400, "not_json", piece.fault)
        if not isinstance(event, dict):
            raise _Refused(400, "not_an_object", f"expected an object, got {type(event).__name__}")
        if _is_withheld(event):
            return _withheld(event, received_at, policies)
        if len(piece.text) * 4 > max_bytes and piece.size > max_bytes:
            raise _Refused(413, "too_large", f"{piece.size} bytes; an event may have {max_bytes}")
        occurred_at = _moment(event.get("time"))
        return _outcome(_cloud_event(event, occurred_at or received_at), occurred_at, received_at, policies)
    except _Refused as refused:
        return _refusal(piece, received_at, refused)


def _cloud_event(event: Mapping[str, Any], time: datetime) -> CloudEvent:
    """By the rules of the specification; an attribute that is null is one that is not there."""
    for name in REQUIRED:
        if event.get(name) is None:
            raise _Refused(400, "bad_field", f"{name}: required")
    if event.get("data_base64") is not None:
        raise _Refused(422, "bad_field", "data_base64: expected data, an object")
    attributes = {name: value for name, value in event.items() if value is not None and name not in ("data", "data_base64")}
    attributes["time"] = time
    try:
        return CloudEvent(attributes, event.get("data"))
    except CloudEventValidationError as error:
        name, faults = next(iter(error.errors.items()))
        raise _Refused(400, "bad_field", f"{name}: {_expected(attributes.get(name), faults)}") from error


def _expected(value: Any, faults: Sequence[Exception]) -> str:
    """In other words than those of Python."""
    if any(isinstance(fault, InvalidAttributeTypeError) for fault in faults):
        return "expected a string"
    if value == "" and isinstance(faults[0], InvalidAttributeValueError):
        return "expected a string that is not empty"
    return str(faults[0])


def _outcome(event: CloudEvent, occurred_at: datetime | None, received_at: datetime, policies: Collection[str]) -> Judged:
    policy, turn_id = event.get_extension("policy"), event.get_extension("turnid")
    if not isinstance(policy, str) or policy not in policies:
        raise _Refused(422, "unknown_policy", f"policy: expected one of {', '.join(sorted(policies))}")
    if turn_id is not None and not isinstance(turn_id, str):
        raise _Refused(422, "bad_field", "turnid: expected a string")
    event_id, told_episode = event.get_id(), event.get_extension("episodeid")
    try:
        episode_id = told_episode or _episode(turn_id)
        happening, unknown = _happening(event)
        outcome = Outcome.model_validate(
            {
                "event_id": event_id,
                "policy": policy,
                "turn_id": turn_id,
                "episode_id": episode_id,
                "occurred_at": received_at if occurred_at is None else occurred_at,
                "received_at": received_at,
                "happening": happening,
            },
            strict=True,
        )
    except Poison as poison:
        detail = f"turnid: expected <episode_id>.<rest>, something before its last dot and behind it, got {turn_id!r}"
        raise _Refused(422, poison.reason, detail) from poison
    except ValidationError as error:
        raise _Refused(422, "bad_field", _first_fault(error, bool(told_episode))) from error
    return Judged(event_id, outcome, note=_note(occurred_at, received_at, unknown))


def _note(occurred_at: datetime | None, received_at: datetime, unknown: Sequence[str]) -> str | None:
    """What was taken otherwise than it was told."""
    notes = []
    if occurred_at is None:
        notes.append("time: none that could be read, taken as of its arrival")
    elif occurred_at - received_at > _AHEAD:
        notes.append("time: more than a minute ahead, counts as of its arrival")
    if unknown:
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        notes.append(f"data: left out what this release does not know: {', '.join(unknown[:_NAMED])}{more}")
    return readable("; ".join(notes)) if notes else None


def _episode(turn_id: str | None) -> str:
    if turn_id is None:
        raise _Refused(422, "no_turn_named", "turnid: an event names its turn, or its episode in episodeid")
    return episode_of(turn_id)


def _happening(event: CloudEvent) -> tuple[dict[str, Any], Sequence[str]]:
    """With the names of the fields that are not in it, because this release does not know them for its kind."""
    kind = event.get_type()
    if not kind.startswith(PREFIX):
        raise _Refused(422, "bad_field", f"type: expected {PREFIX}<kind>")
    kind = kind[len(PREFIX) :]
    data: Any = event.get_data()
    if data is None:
        return {"kind": kind}, ()
    if not isinstance(data, dict):
        raise _Refused(422, "bad_field", f"data: expected an object, got {type(data).__name__}")
    if "kind" in data:
        raise _Refused(422, "bad_field", "data.kind: the kind is told by the type")
    if kind not in KINDS:
        if (fault := unfit(data)) is not None:
            raise _Refused(422, "bad_field", f"data: {fault}")
        return {"kind": kind, **data}, ()
    known = KINDS[kind].model_fields
    told = {name: value for name, value in data.items() if name in known}
    unknown = [name for name in data if name not in known] if len(told) < len(data) else ()
    return {"kind": kind, **told}, unknown


def _moment(time: Any) -> datetime | None:
    """None where there is none, or a clock told what no clock should: then the moment of arrival counts."""
    if time is None:
        return None
    if not isinstance(time, str):
        raise _Refused(422, "bad_field", "time: expected a string such as 2026-01-01T12:00:00.5Z")
    try:
        told = datetime.fromisoformat(_LEAP.sub(r"\g<1>59", time.upper()))
        if told.tzinfo is None:
            raise _Refused(422, "bad_field", "time: expected an offset, such as Z or +02:00, at its end")
        return told.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _is_withheld(event: Mapping[str, Any]) -> bool:
    """Anything but a plain yes is a no."""
    turn_id = event.get("turnid")
    return event.get("consent", True) is not True or (isinstance(turn_id, str) and is_withheld(turn_id))


def _withheld(event: Mapping[str, Any], received_at: datetime, policies: Collection[str]) -> Judged:
    """A bare count: not even its id is kept, in whatever form, so that one that is sent twice counts twice."""
    policy = event.get("policy")
    refusal = Refusal(
        refusal_id=f"withheld-{uuid.uuid4().hex}",
        event_id=None,
        policy=policy if isinstance(policy, str) and policy in policies else None,
        reason=NO_CONSENT,
        detail="",
        received_at=received_at,
    )
    return Judged(_told_id(event), refusal, 422)


def _refusal(piece: Piece, received_at: datetime, why: _Refused) -> Judged:
    """Counted under the event's own id where that can be used, else under a digest of what was sent."""
    event = piece.value if isinstance(piece.value, dict) else {}
    named, policy = event.get("id"), event.get("policy")
    usable = isinstance(named, str) and _NAME.fullmatch(named) is not None
    refusal = Refusal(
        refusal_id=named if usable else _digest(piece.text),
        event_id=named if usable else None,
        policy=policy if isinstance(policy, str) and _NAME.fullmatch(policy) else None,
        reason=why.reason,
        detail=readable(why.detail),
        received_at=received_at,
    )
    return Judged(_told_id(event), refusal, why.code)


def whole_body_refusal(body: bytes, received_at: datetime, reason: str, detail: str) -> Refusal:
    """Of a request of which no event could be told apart."""
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    return Refusal(refusal_id=digest, event_id=None, policy=None, reason=reason, detail=readable(detail), received_at=received_at)


def readable(detail: str) -> str:
    """Short, and without what databases and terminals stumble over; not said at all where it would quote a secret."""
    plain = withhold(detail[:2000])[:500].encode("utf-8", "backslashreplace").decode()
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", plain)


def _told_id(event: Mapping[str, Any]) -> str | None:
    event_id = event.get("id")
    return event_id if isinstance(event_id, str) and len(event_id) <= 256 and is_text(event_id) else None


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _first_fault(error: ValidationError, told_episode: bool) -> str:
    """In the words of the wire: `data.characters`, not `happening.accepted.characters`. An episode that was not told has no fault
    that its turn does not have too."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    faults = [fault for fault in faults if told_episode or fault["loc"] != ("episode_id",)]
    where = [str(part) for part in faults[0]["loc"]]
    if where and where[0] == "happening":
        where = ["data", *where[2:]] if where[2:] != ["kind"] else ["type"]
    elif where:
        where = [_ATTRIBUTES.get(where[0], where[0]), *where[1:]]
    said = faults[0]["msg"].removeprefix("Value error, ").replace("turn_id", "turnid").replace("episode_id", "episodeid")
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{'.'.join(where)}: {said}{more}" if where else f"{said}{more}"
