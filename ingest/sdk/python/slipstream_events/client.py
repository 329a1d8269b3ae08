"""`Client` and `AsyncClient`: the same client, whose waiting is done by the thread or by the event loop.

Enters: calls from the host program, on any thread. Leaves: events to the collector. Only making a client can raise (`ValueError`
for an address or a limit that makes no sense); telling never does, never waits, and says in `stats` what became of everything.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from concurrent.futures import CancelledError
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from platformdirs import user_state_path

from slipstream_events.core import Core
from slipstream_events.courier import OnRefused
from slipstream_events.event import About, NaiveTime, NotJson, Sender, encode
from slipstream_events.kinds import Teller, harmless
from slipstream_events.limits import Limits
from slipstream_events.tally import Stats
from slipstream_events.wire import Key

logger = logging.getLogger("slipstream_events")

_SPOILED_BY: dict[type[Exception], str] = {NaiveTime: "naive_time", NotJson: "not_json"}


class _Client(Teller):
    """`url`: the collector's, without a path. `policy`: the one that gave the answers. `source`: your program and its version.

    `key`: an `sk_...` of scope producer, or a function that gives the current one. `consent`: whether this person agreed to be
    learned from; may be changed at any time. `spool`: a folder for what could not be sent, True for the usual place, False for
    memory only. `on_refused` is called for each event that the collector refused.
    """

    def __init__(
        self,
        url: str,
        policy: str,
        *,
        key: Key = None,
        source: str = "/python",
        consent: bool = True,
        spool: Path | str | bool = True,
        on_refused: OnRefused | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.consent = consent
        self._sender = Sender.of(source, policy)
        self._core = Core(url, key, _folder(spool, url), limits or Limits(), on_refused)

    @harmless
    def tell(self, kind: str, turn: str | None = None, data: dict[str, Any] | None = None, **about: Unpack[About]) -> str | None:
        event_id, line = encode(kind, turn, data, about, self._sender, self.consent)
        with self._core.tally.lock:
            self._core.tally.told += 1
        return event_id if self._core.put(line) else None

    def spoiled(self, error: Exception) -> None:
        try:
            with self._core.tally.lock:
                self._core.tally.told += 1
            self._core.tally.drop(_SPOILED_BY.get(type(error), "bad_call"))
            logger.debug("an event could not be told: %s", error)
        except Exception:
            return

    @property
    def stats(self) -> Stats:
        return self._core.tally.stats()


class Client(_Client):
    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until everything told so far was sent, at most `timeout_s`; False when some of it waits for the collector."""
        done = self._core.flush(timeout_s)
        try:
            return done.result(timeout_s)
        except (TimeoutError, CancelledError):
            done.cancel()
            return False

    def close(self, timeout_s: float | None = None) -> bool:
        """Send what is in memory, at most `timeout_s` (default: the limit `exit_s`); the rest goes to the spool."""
        return self._core.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class AsyncClient(_Client):
    async def flush(self, timeout_s: float = 10.0) -> bool:
        """As `Client.flush`; the event loop goes on meanwhile."""
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._core.flush(timeout_s)), timeout_s)
        except TimeoutError:
            return False

    async def close(self, timeout_s: float | None = None) -> bool:
        return await asyncio.to_thread(self._core.close, timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


def _folder(spool: Path | str | bool, url: str) -> Path | None:
    """One folder for each collector: what was told to one is never sent to another."""
    if spool is False:
        return None
    name = hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:12]
    root = user_state_path("slipstream-events", appauthor=False) if spool is True else Path(spool)
    return root / name
