"""The console's HTTP: `/` is a page, `/api/overview` what it draws, `/health` says that the process answers.

Enters: GET requests. Leaves: an answer that was read at most a moment ago. Reading takes longer the more rewards there are; so an
answer is repeated while it is fresh, and where reading is slow the last one is given while the next is read, with its time in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import FileResponse

from contracts.policy import Policy
from contracts.record import Record
from infra.clock import Clock, system_clock
from infra.db.engine import reading
from infra.db.query import Engine
from registry.console.overview import read_overview
from registry.console.views import Overview

_PAGE = Path(__file__).parent / "page"
_FILES = {"style.css": "text/css", "console.js": "text/javascript", "draw.js": "text/javascript"}
_SHARE_OF_TIME = 10
_QUICK_S = 0.05
_TOO_OLD_S = 5.0
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self'; script-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Health(Record):
    status: Literal["ok"] = "ok"


def make_console(engine: Engine, policies: Mapping[str, Policy], fresh_s: float, clock: Clock = system_clock) -> FastAPI:
    app = FastAPI(title="Slipstream console", docs_url=None, redoc_url=None)
    snapshots = {name: _Snapshot(engine, policy, tuple(policies), fresh_s, clock) for name, policy in policies.items()}

    @app.get("/api/overview", response_model=Overview)
    def overview(policy: str | None = None) -> Response:
        name = policy or next(iter(snapshots))
        if name not in snapshots:
            raise HTTPException(404, f"no policy is called {name!r}; there are: {', '.join(snapshots)}")
        return Response(snapshots[name].answer(), media_type="application/json", headers=_HEADERS)

    @app.get("/health")
    def health() -> Health:
        return Health()

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(_PAGE / "index.html", media_type="text/html", headers=_HEADERS)

    @app.get("/page/{name}", include_in_schema=False)
    def file(name: str) -> FileResponse:
        if name not in _FILES:
            raise HTTPException(404, f"there is no {name!r} here")
        return FileResponse(_PAGE / name, media_type=_FILES[name], headers=_HEADERS)

    return app


@dataclass(frozen=True)
class _Read:
    body: bytes
    at: float
    took: float


class _Snapshot:
    """The last answer about one policy. Reading may take a tenth of the time at most, so that a console costs the loop little."""

    def __init__(self, engine: Engine, policy: Policy, policies: tuple[str, ...], fresh_s: float, clock: Clock) -> None:
        self._engine = engine
        self._policy = policy
        self._policies = policies
        self._fresh_s = fresh_s
        self._clock = clock
        self._last: _Read | None = None
        self._reading = threading.Lock()

    def answer(self) -> bytes:
        last = self._last
        age_s = time.monotonic() - last.at if last is not None else float("inf")
        wait_s = max(self._fresh_s, _SHARE_OF_TIME * last.took) if last is not None else 0.0
        if last is None or age_s > wait_s + _TOO_OLD_S or (last.took < _QUICK_S and age_s > self._fresh_s):
            with self._reading:
                if self._last is last or self._last is None:
                    self._last = self._read()
                return self._last.body
        if age_s > wait_s and self._reading.acquire(blocking=False):
            threading.Thread(target=self._again, name="overview", daemon=True).start()
        return last.body

    def _again(self) -> None:
        try:
            self._last = self._read()
        finally:
            self._reading.release()

    def _read(self) -> _Read:
        began = time.monotonic()
        with reading(self._engine) as session:
            found = read_overview(session, self._policy, self._policies, self._clock())
        took = time.monotonic() - began
        return _Read(found.model_dump_json().encode(), began, took)
