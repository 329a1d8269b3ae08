"""Hand events to the collector.

Enters: events in the CloudEvents wire format, no more than it takes at once. Leaves: what was refused, with its reason; everything
else is durable when `send` returns. What can go wrong: `Retry` when the collector is away or asks for patience (send the same
events again, ids make that harmless); `StartError` with its own words when it refuses the request as a whole: no key, a wrong one.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contracts.errors import Retry, StartError
from ingest.replay.translate import Wire

BATCH = "application/cloudevents-batch+json"
_PATIENT = (429, 502, 503, 504)
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Refused:
    event_id: str
    reason: str
    detail: str


class Busy(Retry):
    """It is there and says when to come again."""

    def __init__(self, what: str, after_s: float) -> None:
        super().__init__(what)
        self.after_s = after_s


class Collector:
    def __init__(self, url: str, key: str | None = None) -> None:
        self._url = url
        self._headers = {"Content-Type": BATCH, **({"Authorization": f"Bearer {key}"} if key else {})}

    def look(self) -> None:
        """Raises `StartError` where nothing answers, before anything is told."""
        try:
            with urllib.request.urlopen(self._url.replace("/v1/events", "/health"), timeout=_TIMEOUT_S):
                pass
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise StartError(f"no collector answers at {self._url} ({reason}); start the service with `slipstream up`") from error

    def send(self, events: Sequence[Wire]) -> list[Refused]:
        body = json.dumps(events, allow_nan=False).encode()
        request = urllib.request.Request(self._url, data=body, headers=self._headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                return _refused(json.load(answer))
        except urllib.error.HTTPError as error:
            words = _words(error)
            if error.code in _PATIENT:
                raise Busy(f"the collector answers {error.code}: {words}", _seconds(error.headers.get("Retry-After"))) from error
            raise StartError(f"the collector at {self._url} answers {error.code}: {words}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Retry(f"the collector at {self._url} does not answer ({reason})") from error
        except (ValueError, KeyError, TypeError) as error:
            raise StartError(f"{self._url} does not answer as a collector does ({error})") from error


def _seconds(retry_after: str | None) -> float:
    try:
        return max(0.0, float(retry_after or 0))
    except ValueError:
        return 0.0


def _words(error: urllib.error.HTTPError) -> str:
    """The collector's own sentence, where there is one."""
    try:
        return str(json.load(error)["error"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return error.reason


def _refused(answer: Any) -> list[Refused]:
    return [
        Refused(str(fate["id"]), str(fate.get("reason")), str(fate.get("detail")))
        for fate in answer["results"]
        if fate["status"] != "taken"
    ]
