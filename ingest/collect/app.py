"""`POST /v1/events`: one CloudEvent, or a batch of them.

Enters: HTTP requests of those who have a key. Leaves: the fate of each event, in order, once it is durable (202 when all were
taken, 207 when some were refused). What can go wrong is said in `ingest.collect.openapi`: of a request that gets another status
nothing was taken, and ids make it harmless to send it again.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from contracts.outcome import Refusal
from infra.clock import Clock
from infra.door import Door, Turned
from infra.keys import Key, Scope
from infra.rates import Rates
from ingest.collect.decode import Judged, decode, whole_body_refusal
from ingest.collect.inflate import ENCODINGS, TooLarge, inflate, read
from ingest.collect.intake import Intake
from ingest.collect.openapi import BATCH, ONE, REQUEST, RESPONSES, SECURITY
from ingest.collect.pieces import NotJson, cut
from ingest.config import IngestConfig

_ASIDE_BYTES = 64 * 1024
"""A body larger than this is taken apart in another thread, while the event loop answers others."""


class _Turned(Exception):
    """The whole request: nothing of it is taken."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


class _Plain(APIRoute):
    """Documented as any route, but the endpoint gets the request as it is: there is nothing to inject."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        return self.endpoint


class Collector:
    """`turned`: requests of which nothing was taken, by status."""

    def __init__(
        self, intake: Intake, door: Door, rates: Rates, policies: Collection[str], config: IngestConfig, clock: Clock
    ) -> None:
        self._intake = intake
        self._door = door
        self._rates = rates
        self._policies = policies
        self._config = config
        self._clock = clock
        self._most_bytes = config.max_body_kb * 1024
        self.turned: Counter[int] = Counter()

    async def take(self, request: Request) -> Response:
        try:
            key = await self._admit(request)
            batch, body = await self._body(request)
            judged = await self._judge(body, batch)
            if key is not None and key.rate is not None:
                self._rates.spend(key.key_id, key.rate, max(1, len(judged)))
            fates = await self._store(judged)
        except ClientDisconnect:
            return Response(status_code=400)  # to nobody
        except _Turned as turned:
            self.turned[turned.status] += 1
            return _json({"error": {"message": turned.message}}, turned.status, turned.headers)
        return _told(fates)

    async def _admit(self, request: Request) -> Key | None:
        try:
            key = await self._door.admit(request.headers.get("authorization"), Scope.PRODUCER)
        except Turned as turned:
            headers = {"WWW-Authenticate": "Bearer"} if turned.status == 401 else {}
            if turned.retry_after_s is not None:
                headers["Retry-After"] = str(turned.retry_after_s)
            raise _Turned(turned.status, turned.message, headers) from turned
        if key is not None and key.rate is not None:
            wait_s = self._rates.wait_s(key.key_id, key.rate)
            if wait_s > 0:
                seconds = max(1, math.ceil(wait_s))
                raise _Turned(429, f"the key may send {key.rate:g} events per second", {"Retry-After": str(seconds)})
        return key

    async def _body(self, request: Request) -> tuple[bool, bytes]:
        kind, _, rest = request.headers.get("content-type", "").partition(";")
        kind = kind.strip().lower()
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if kind not in (ONE, BATCH) or not _is_utf8(rest):
            raise _Turned(415, f"expected content-type {ONE} or {BATCH}, in UTF-8", {"Accept": f"{ONE}, {BATCH}"})
        if encoding not in (*ENCODINGS, "identity"):
            raise _Turned(415, f"expected content-encoding {' or '.join(ENCODINGS)}", {"Accept-Encoding": ", ".join(ENCODINGS)})
        try:
            body = await read(request.stream(), self._most_bytes)
            if encoding != "identity":
                body = await asyncio.to_thread(inflate, body, encoding, self._most_bytes)
        except TooLarge as error:
            raise await self._turn(413, error.seen, "too_large", str(error)) from error
        except ValueError as error:
            raise await self._turn(400, body, "bad_encoding", str(error)) from error
        return kind == BATCH, body

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
        pieces = cut(body, batch)
        if len(pieces) > self._config.max_batch_events:
            raise TooLarge(f"{len(pieces)} events; a batch may have {self._config.max_batch_events}")
        received_at = self._clock()
        return [decode(piece, received_at, self._policies, self._config.max_event_bytes) for piece in pieces]

    async def _store(self, judged: Sequence[Judged]) -> Sequence[Judged]:
        try:
            return await self._intake.store(judged)
        except OSError as error:
            message = f"nothing was taken, send it again later: {error.strerror or error}"
            raise _Turned(503, message, {"Retry-After": "5"}) from error

    async def _turn(self, status: int, body: bytes, reason: str, detail: str) -> _Turned:
        """Of a body without events that could be told apart, the refusal is what is kept."""
        try:
            await self._intake.refuse(whole_body_refusal(body, self._clock(), reason, detail))
        except OSError as error:
            return _Turned(503, f"nothing was taken: {error.strerror or error}", {"Retry-After": "5"})
        return _Turned(status, detail)


def make_app(collector: Collector) -> FastAPI:
    app = FastAPI(title="Slipstream collector", docs_url=None, redoc_url=None)
    app.router.add_api_route(
        "/v1/events",
        collector.take,
        methods=["POST"],
        summary="Tell what became of answers",
        responses=RESPONSES,
        status_code=202,
        response_class=Response,
        openapi_extra=REQUEST,
        route_class_override=_Plain,
    )

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ready"}

    described = app.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        schema.setdefault("components", {})["securitySchemes"] = SECURITY
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _is_utf8(parameters: str) -> bool:
    name, _, value = parameters.partition("=")
    return name.strip().lower() != "charset" or value.strip().strip('"').lower() in ("utf-8", "utf8", "us-ascii")


def _told(fates: Sequence[Judged]) -> Response:
    results = [_fate(one) for one in fates]
    refused = any(isinstance(one.record, Refusal) for one in fates)
    return _json({"results": results}, 207 if refused else 202)


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
    fate = {"id": judged.event_id, "status": "taken"}
    return fate if judged.note is None else {**fate, "note": judged.note}


def _json(body: Any, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(body).encode(), status, headers, "application/json")
