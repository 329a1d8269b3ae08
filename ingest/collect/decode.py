"""One event of a client becomes an `Outcome`, or a `Refusal` that says which field was wrong and what was expected.

Enters: parsed JSON of one event and the moment it was received. Leaves: one of the two records; nothing is raised and nothing
disappears. The client's clock is kept as it was told; the order of outcomes never trusts it beyond the moment of receipt.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from contracts.errors import Poison
from contracts.ids import episode_of
from contracts.outcome import Outcome, Refusal
from contracts.record import first_fault

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
_FIELDS = frozenset({"event_id", "policy", "turn_id", "episode_id", "occurred_at", "happening"})


def decode(event: Any, received_at: datetime, policies: Collection[str], max_bytes: int) -> Outcome | Refusal:
    text = json.dumps(event, sort_keys=True)
    if len(text) > max_bytes:
        return _refusal(event, text, received_at, "too_large", f"{len(text)} bytes; an event may have {max_bytes}")
    if not isinstance(event, dict):
        return _refusal(event, text, received_at, "not_an_object", f"expected an object, got {type(event).__name__}")
    strange = sorted(set(event) - _FIELDS)
    if strange:
        return _refusal(event, text, received_at, "unknown_field", f"{strange[0]}: not a field of an event")
    policy = event.get("policy")
    if not isinstance(policy, str) or policy not in policies:
        known = ", ".join(sorted(policies))
        return _refusal(event, text, received_at, "unknown_policy", f"policy: expected one of {known}")
    try:
        episode_id = event.get("episode_id") or episode_of(str(event.get("turn_id")))
        return Outcome.model_validate({**event, "episode_id": episode_id, "received_at": received_at})
    except ValidationError as error:
        return _refusal(event, text, received_at, "bad_field", first_fault(error))
    except Poison as poison:
        return _refusal(event, text, received_at, "no_turn_named", f"{poison.detail}; an event names its turn or its episode")


def _refusal(event: Any, text: str, received_at: datetime, reason: str, detail: str) -> Refusal:
    """Counted under the event's own id where that can be used, else under a digest of what was sent."""
    named = event.get("event_id") if isinstance(event, dict) else None
    digest = f"sha256:{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()}"
    policy = event.get("policy") if isinstance(event, dict) else None
    for candidate in (named, digest):
        try:
            return Refusal(
                refusal_id=candidate,
                event_id=candidate if candidate is named else None,
                policy=policy if isinstance(policy, str) and _NAME.fullmatch(policy) else None,
                reason=reason,
                detail=detail[:500].encode("utf-8", "backslashreplace").decode(),
                received_at=received_at,
            )
        except ValidationError:
            continue
    raise AssertionError("a digest is always a usable id")
