"""The clients' side of HTTP: ask the gateway for a completion, hand events to the collector.

Enters: requests and events. Leaves: answers, and which events were taken or refused. What can go wrong: a service that is away or
restarts raises `Unanswered`; the caller decides whether to try again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from contracts.errors import SlipstreamError
from harness.developers.reaction import Answer, Event


class Unanswered(SlipstreamError):
    """No usable answer: refused connection, time-out, or a status that is not 2xx."""


@dataclass(frozen=True)
class Addresses:
    gateway: str
    collector: str
    console: str


class Client:
    """One pool of connections, shared by all simulated developers."""

    def __init__(self, addresses: Addresses, session: aiohttp.ClientSession) -> None:
        self._addresses = addresses
        self._session = session

    async def complete(self, policy: str, context: str, headers: dict[str, str]) -> Answer:
        body = {"model": policy, "prompt": context}
        answer = await self._json("POST", f"{self._addresses.gateway}/v1/completions", body, headers)
        try:
            said = answer["slipstream"]
            text = "" if said["silent"] else answer["choices"][0]["text"]
            return Answer(said["turn_id"], said["episode_id"], said["version"], text)
        except (KeyError, IndexError, TypeError) as error:
            raise Unanswered(f"the gateway's answer lacks {error}") from error

    async def send(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        """The fate of each event, in order."""
        headers = {"content-type": "application/cloudevents-batch+json"}
        answer = await self._json("POST", f"{self._addresses.collector}/v1/events", list(events), headers)
        return list(answer["results"])

    async def overview(self, policy: str) -> dict[str, Any]:
        return await self._json("GET", f"{self._addresses.console}/api/overview?policy={policy}", None, {})

    async def healthy(self, base: str) -> bool:
        try:
            await self._json("GET", f"{base}/health", None, {})
        except Unanswered:
            return False
        return True

    async def _json(self, method: str, url: str, body: Any, headers: dict[str, str]) -> dict[str, Any]:
        try:
            async with self._session.request(method, url, json=body, headers=headers) as response:
                if response.status >= 300:
                    raise Unanswered(f"{url} answered {response.status}: {(await response.text())[:300]}")
                found: dict[str, Any] = await response.json()
                return found
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unanswered(f"{url}: {type(error).__name__}: {error}") from error


def open_session(connections: int = 128) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections), timeout=aiohttp.ClientTimeout(total=60.0))
