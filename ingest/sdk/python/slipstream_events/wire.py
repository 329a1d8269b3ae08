"""One request to the collector.

Enters: the lines of a batch. Leaves: a `Verdict`; a collector that cannot be reached is one of them. Nothing raises. The
connection is opened at the first request, by the thread that sends, and stays open.
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import httpx

from slipstream_events.answer import Then, Verdict, judge

logger = logging.getLogger("slipstream_events")

Key = str | Callable[[], str | None] | None
_COMPRESS_FROM_BYTES = 1_024


class Wire:
    def __init__(self, url: str, key: Key) -> None:
        parsed = urlsplit(url)
        if parsed.scheme not in ("http", "https") or not parsed.hostname:
            raise ValueError(f"url: expected http(s)://host[:port], got {url!r}")
        self._url = f"{url.rstrip('/')}/v1/events"
        self._key = key
        self._compresses = True
        self._http: httpx.Client | None = None

    def send(self, lines: Sequence[bytes], within_s: float) -> Verdict:
        verdict = self._post(lines, within_s)
        if verdict.then is Then.PLAIN and self._compresses:
            self._compresses = False
            verdict = self._post(lines, within_s)
        return Verdict(Then.HOPELESS, fault=verdict.fault) if verdict.then is Then.PLAIN else verdict

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def _post(self, lines: Sequence[bytes], within_s: float) -> Verdict:
        body = b"[" + b",".join(lines) + b"]"
        headers = {"Content-Type": "application/cloudevents-batch+json"}
        if self._compresses and len(body) >= _COMPRESS_FROM_BYTES:
            body = gzip.compress(body, 5, mtime=0)
            headers["Content-Encoding"] = "gzip"
        try:
            key = self._key() if callable(self._key) else self._key
            if key:
                headers["Authorization"] = f"Bearer {key}"
            if self._http is None:
                self._http = httpx.Client(follow_redirects=False)
            answer = self._http.post(self._url, content=body, headers=headers, timeout=within_s)
            return judge(answer.status_code, answer.headers.get("retry-after"), answer.content, len(lines))
        except Exception as error:
            return Verdict(Then.AGAIN, fault=f"{type(error).__name__}: {error}"[:200])
