"""`POST /v1/events`: one event, a list of events, or `{"events": [...]}`.

Enters: JSON. Leaves: the fate of each event, in order, after the log has them (202 when all were taken, 207 when some were
refused). A body that is no JSON gets 400; when the log is away 503 with Retry-After, and nothing was taken: send it again, ids
make that harmless.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from contracts.errors import Retry
from contracts.outcome import Outcome, Refusal
from contracts.topics import OUTCOMES, REFUSALS
from infra.clock import Clock
from infra.eventlog.port import Entry, EventLog
from ingest.collect.decode import decode
from ingest.config import IngestConfig


def make_app(log: EventLog, policies: Collection[str], config: IngestConfig, clock: Clock) -> FastAPI:
    app = FastAPI(title="Slipstream collector", docs_url=None, redoc_url=None)
    limit = config.max_event_bytes * config.max_batch_events

    @app.post("/v1/events")
    async def take(request: Request) -> Response:
        body = await request.body()
        if len(body) > limit:
            return _fault(413, f"{len(body)} bytes; a batch may have {limit}")
        try:
            events = _events(json.loads(body))
        except (ValueError, RecursionError) as error:
            return _fault(400, f"the body is not JSON: {error}")
        if len(events) > config.max_batch_events:
            return _fault(413, f"{len(events)} events; a batch may have {config.max_batch_events}")
        received_at = clock()
        judged = [decode(event, received_at, policies, config.max_event_bytes) for event in events]
        try:
            await asyncio.to_thread(_append, log, judged)
        except Retry as away:
            return _fault(503, f"nothing was taken, send it again: {away}", {"Retry-After": "1"})
        fates = [_fate(one) for one in judged]
        refused = sum(fate["status"] == "refused" for fate in fates)
        return JSONResponse({"results": fates}, status_code=207 if refused else 202)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ready"}

    return app


def _events(body: Any) -> Sequence[Any]:
    if isinstance(body, list):
        return body
    if isinstance(body, dict) and isinstance(body.get("events"), list):
        return list(body["events"])
    return [body]


def _append(log: EventLog, judged: Sequence[Outcome | Refusal]) -> None:
    """Outcomes first: a refusal that is repeated after a failure in between counts once all the same."""
    outcomes = [Entry(one.episode_id, one.encode()) for one in judged if isinstance(one, Outcome)]
    refusals = [Entry(one.refusal_id, one.encode()) for one in judged if isinstance(one, Refusal)]
    if outcomes:
        log.append(OUTCOMES.name, outcomes)
    if refusals:
        log.append(REFUSALS.name, refusals)


def _fate(judged: Outcome | Refusal) -> dict[str, str | None]:
    if isinstance(judged, Outcome):
        return {"event_id": judged.event_id, "status": "taken"}
    return {"event_id": judged.event_id, "status": "refused", "reason": judged.reason, "detail": judged.detail}


def _fault(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=status, headers=headers)
