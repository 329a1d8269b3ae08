"""The collector over HTTP: `POST /v1/events`, `GET /health`, and an OpenAPI that says what they do.

Enters: requests. Leaves: answers. Events are answered before FastAPI looks for a route: there is nothing to inject, and its
layers would cost as much again as taking the event. What can go wrong is in `ingest.collect.openapi`, status by status.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from ingest.collect.openapi import EVENTS_PATH, components
from ingest.collect.request import Answer, Collector

PATH = "/v1/events"
_JSON = (b"content-type", b"application/json")


class Gone(Exception):
    """The client went away before it had sent everything."""


class CollectorApp(FastAPI):
    def __init__(self, collector: Collector) -> None:
        super().__init__(title="Slipstream collector", docs_url=None, redoc_url=None)
        self._collector = collector

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") != PATH or scope["type"] != "http":
            await super().__call__(scope, receive, send)
        elif scope["method"] != "POST":
            await _send(send, Answer(405, b'{"error":{"message":"events are posted"}}', {"Allow": "POST"}))
        else:
            try:
                answer = await self._collector.take(dict(scope["headers"]), _chunks(receive))
            except Gone:
                return
            await _send(send, answer)

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            described = super().openapi()
            described["paths"][PATH] = EVENTS_PATH
            described["components"] = components(self._collector.policies)
            self.openapi_schema = described
        return self.openapi_schema


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def _send(send: Send, answer: Answer) -> None:
    headers = [_JSON, (b"content-length", b"%d" % len(answer.body))]
    for name, value in answer.headers.items():
        headers.append((name.lower().encode(), value.encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def make_app(collector: Collector) -> FastAPI:
    app = CollectorApp(collector)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ready"}

    return app
