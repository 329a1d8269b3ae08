"""An answer as it grows: text as soon as nothing that is still to come can change it.

Enters: sampled ids, from the engine's thread. Leaves: pieces of text that add up to the answer's text. A piece that ends
inside a character, or might be the start of a stop string, waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

_UNFINISHED = "\ufffd"


class Tokens:
    """Carries ids from the engine's thread to the event loop; None ends them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[int | None] = asyncio.Queue()

    def put(self, token: int | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, token)
        except RuntimeError:
            pass  # the process ends; nobody listens any more

    async def __aiter__(self) -> AsyncIterator[int]:
        while (token := await self._queue.get()) is not None:
            yield token


class Pieces:
    """Decodes all ids anew at each token, because a token alone may be half a character."""

    def __init__(self, decode: Callable[[list[int]], str], stops: tuple[str, ...]) -> None:
        self._decode = decode
        self._stops = stops
        self._held = max((len(stop) - 1 for stop in stops), default=0)
        self._ids: list[int] = []
        self._sent = 0

    def add(self, token: int) -> str:
        self._ids.append(token)
        text = self._decode(self._ids)
        if text.endswith(_UNFINISHED) or any(stop in text for stop in self._stops):
            return ""
        return self._upto(text, len(text) - self._held)

    def rest(self, text: str) -> str:
        """What of the whole answer has not been sent."""
        return self._upto(text, len(text))

    def _upto(self, text: str, end: int) -> str:
        piece = text[self._sent : max(self._sent, end)]
        self._sent += len(piece)
        return piece
