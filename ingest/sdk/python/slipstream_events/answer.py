"""What the collector's answer to a request means for the events in it.

Enters: status, Retry-After, body, and how many events were sent. Leaves: a `Verdict`. Nothing raises: an answer that nobody
understands (a hotel's login page with status 200, say) means that the events are to be sent again.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_WAIT_S = 3_600.0


class Then(enum.Enum):
    """What to do with the events of the request."""

    SETTLED = "each has its fate"
    AGAIN = "later, all of them"
    DENIED = "not with this key or to this address: a few more times, far apart"
    BROKEN = "the collector fails on them: a few more times, then in halves, to find the one it fails on"
    SPLIT = "too much at once: in halves"
    PLAIN = "at once, without compression"
    HOPELESS = "never"


@dataclass(frozen=True, slots=True)
class Fate:
    taken: bool
    code: int = 0
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    then: Then
    fates: tuple[Fate, ...] = ()
    wait_s: float | None = None
    fault: str = ""


def judge(status: int, retry_after: str | None, body: bytes, sent: int) -> Verdict:
    fault = f"HTTP {status}"
    if status in (200, 202, 207):
        fates = _fates(body)
        if fates is None or len(fates) != sent:
            return Verdict(Then.AGAIN, fault=f"{fault} from something that is no collector")
        return Verdict(Then.SETTLED, fates)
    if status in (401, 403, 404, 405, 407):
        return Verdict(Then.DENIED, wait_s=_wait_s(retry_after), fault=fault)
    if status == 413:
        return Verdict(Then.SPLIT, fault=fault)
    if status == 415:
        return Verdict(Then.PLAIN, fault=fault)
    if status == 500:
        return Verdict(Then.BROKEN, fault=fault)
    if status in (408, 425, 429) or status > 500 or status < 400:
        return Verdict(Then.AGAIN, wait_s=_wait_s(retry_after), fault=fault)
    return Verdict(Then.HOPELESS, fault=fault)


def _fates(body: bytes) -> tuple[Fate, ...] | None:
    try:
        results = json.loads(body)["results"]
        return tuple(
            Fate(one["status"] == "taken", int(one.get("code") or 0), str(one.get("reason") or ""), str(one.get("detail") or ""))
            for one in results
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _wait_s(retry_after: str | None) -> float | None:
    """Seconds or an HTTP date, at most an hour; None where there is none to be understood."""
    if not retry_after:
        return None
    try:
        wait_s = float(retry_after)
    except ValueError:
        try:
            wait_s = (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(wait_s, 0.0), LONGEST_WAIT_S) if wait_s == wait_s else None
