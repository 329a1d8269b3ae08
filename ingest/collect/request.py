"""What becomes of one request: who sends it, what its body holds, where each event ends up.

Enters: headers and chunks of a body. Leaves: an `Answer`. Of a request that gets another status than 202 or 207 nothing was taken;
of a body without events that could be told apart, a refusal is kept. Ids make it harmless to send anything again.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contracts.outcome import Refusal
from infra.clock import Clock
from infra.door import Door, Turned
from infra.keys import Key, Scope
from infra.rates import Rates
from ingest.collect.decode import Judged, decode, whole_body_refusal
from ingest.collect.inflate import ENCODINGS, TooLarge, inflate, read
from ingest.collect.intake import Intake
from ingest.collect.openapi import BATCH, ONE
from ingest.collect.pieces import NotJson, cut
from ingest.config import IngestConfig

_ASIDE_BYTES = 64 * 1024
"""A body larger than this is taken apart in another thread, while the event loop answers others."""

_BATCH_OF = {ONE.encode(): False, BATCH.encode(): True}
_FULL_RETRY_S = "5"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class _Turned(Exception):
    """The whole request: nothing of it is taken."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.answer = Answer(status, json.dumps({"error": {"message": message}}).encode(), headers or {})


class Collector:
    """`turned`: requests of which nothing was taken, by status."""

    def __init__(
        self, intake: Intake, door: Door, rates: Rates, policies: Collection[str], config: IngestConfig, clock: Clock
    ) -> None:
        self._intake = intake
        self._door = door
        self._rates = rates
        self.policies = policies
        self._config = config
        self._clock = clock
        self._most_bytes = config.max_body_kb * 1024
        self.turned: Counter[int] = Counter()

    async def take(self, headers: Mapping[bytes, bytes], chunks: AsyncIterator[bytes]) -> Answer:
        """`headers`: names in small letters."""
        try:
            key = await self._admit(headers.get(b"authorization"))
            number = 1
            try:
                batch = _is_batch(headers.get(b"content-type", b""))
                body = await self._body(headers.get(b"content-encoding"), chunks)
                judged = await self._judge(body, batch)
                number = max(number, len(judged))
            finally:  # a request that fails as a whole costs as one event
                if key is not None and key.rate is not None:
                    self._rates.spend(key.key_id, key.rate, number)
            return _told(await self._store(judged))
        except _Turned as turned:
            self.turned[turned.answer.status] += 1
            return turned.answer

    async def _admit(self, authorization: bytes | None) -> Key | None:
        try:
            key = await self._door.admit(None if authorization is None else authorization.decode("latin-1"), Scope.PRODUCER)
        except Turned as turned:
            headers = {"WWW-Authenticate": "Bearer"} if turned.status == 401 else {}
            if turned.retry_after_s is not None:
                headers["Retry-After"] = str(turned.retry_after_s)
            raise _Turned(turned.status, turned.message, headers) from turned
        if key is not None and key.rate is not None:
            wait_s = self._rates.wait_s(key.key_id)
            if wait_s > 0:
                seconds = max(1, math.ceil(wait_s))
                raise _Turned(429, f"the key may send {key.rate:g} events per second", {"Retry-After": str(seconds)})
        return key

    async def _body(self, encoding: bytes | None, chunks: AsyncIterator[bytes]) -> bytes:
        name = "identity" if encoding is None else encoding.decode("latin-1").strip().lower()
        if name not in (*ENCODINGS, "identity"):
            raise _Turned(415, f"expected content-encoding {' or '.join(ENCODINGS)}", {"Accept-Encoding": ", ".join(ENCODINGS)})
        body = b""
        try:
            body = await read(chunks, self._most_bytes)
            return body if name == "identity" else await asyncio.to_thread(inflate, body, name, self._most_bytes)
        except TooLarge as error:
            raise await self._turn(413, error.seen, "too_large", str(error)) from error
        except ValueError as error:
            raise await self._turn(400, body, "bad_encoding", str(error)) from error

    async def _judge(self, body: bytes, batch: bool) -> Sequence[Judged]:
        try:
            if len(body) <= _ASIDE_BYTES:
                return self._decode(body, batch)
            return await asyncio.to_thread(self._decode, body, batch)
        except NotJson as error:
            raise await self._turn(400, body, "not_json", f"the body is not JSON: {error}") from error
        except TooLarge as error:
            raise await self._turn(413, body, "too_large", str(error)) from error

    def _decode(self, body: bytes, batch: bool) -> Sequence[Judged]:
        pieces = cut(body, batch, self._config.max_batch_events)
        received_at = self._clock()
        return [decode(piece, received_at, self.policies, self._config.max_event_bytes) for piece in pieces]

    async def _store(self, judged: Sequence[Judged]) -> Sequence[Judged]:
        try:
            return await self._intake.store(judged)
        except OSError as error:
            raise _full(error) from error

    async def _turn(self, status: int, body: bytes, reason: str, detail: str) -> _Turned:
        """Of a body without events that could be told apart, the refusal is what is kept."""
        try:
            await self._intake.refuse(whole_body_refusal(body, self._clock(), reason, detail))
        except OSError as error:
            return _full(error)
        return _Turned(status, detail)


def _full(error: OSError) -> _Turned:
    return _Turned(503, f"nothing was taken, send it again later: {error.strerror or error}", {"Retry-After": _FULL_RETRY_S})


def _is_batch(content_type: bytes) -> bool:
    found = _BATCH_OF.get(content_type)
    if found is None:
        kind, _, rest = content_type.partition(b";")
        found = _BATCH_OF.get(kind.strip().lower())
        if found is None or not _is_utf8(rest.decode("latin-1")):
            raise _Turned(415, f"expected content-type {ONE} or {BATCH}, in UTF-8", {"Accept": f"{ONE}, {BATCH}"})
    return found


def _is_utf8(parameters: str) -> bool:
    name, _, value = parameters.partition("=")
    return name.strip().lower() != "charset" or value.strip().strip('"').lower() in ("utf-8", "utf8", "us-ascii")


def _told(fates: Sequence[Judged]) -> Answer:
    """An id that was taken is a `Name` and needs no escaping, which is most of what there is to say."""
    told = [
        f'{{"id":"{one.event_id}","status":"taken"}}' if one.code == 202 and one.note is None else json.dumps(_fate(one))
        for one in fates
    ]
    refused = any(isinstance(one.record, Refusal) for one in fates)
    return Answer(207 if refused else 202, f'{{"results":[{",".join(told)}]}}'.encode())


def _fate(judged: Judged) -> dict[str, Any]:
    record = judged.record
    if isinstance(record, Refusal):
        return {
            "id": judged.event_id,
            "status": "refused",
            "code": judged.code,
            "reason": record.reason,
            "detail": record.detail,
        }
    return {"id": judged.event_id, "status": "taken", "note": judged.note}
