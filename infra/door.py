"""Who may come in: a bearer key, a scope, and what is remembered so that asking costs next to nothing.

Enters: the `Authorization` header of a request. Leaves: the `Key`, or None while the deployment has no key at all and listens to
this machine only. What can go wrong: `Turned` says why with an HTTP status: 401 no key or not a valid one, 403 a key for other
things, 503 nobody can look keys up at the moment.

Argon2 runs once per key and process, in a thread of its own; of a verified key only a digest is remembered. Every few seconds its
row is looked at again, so a revoked key stops working within that time. While the database is away, a key that was good a short
while ago is still good.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from contracts.errors import Retry, SlipstreamError
from infra.db.query import Engine
from infra.keys import Key, Scope, any_key, find_key, is_secret_of, parse_key

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

REMEMBERED = 10_000
WAITING = 64
"""So many secrets may wait to be verified; beyond that somebody is guessing, and is told to come later."""

GRACE_S = 300.0


class Turned(SlipstreamError):
    """Turned away at the door."""

    def __init__(self, status: int, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class _Seen:
    """`key` None: no such key. `until`: when to look again, `known_at`: when it was last looked at (monotonic seconds)."""

    key: Key | None
    until: float
    known_at: float


class Door:
    """For one event loop. `open_database` is called when first needed, in another thread."""

    def __init__(
        self,
        open_database: Callable[[], Engine],
        loopback: bool,
        remember_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_database = open_database
        self._engine: Engine | None = None
        self._loopback = loopback
        self._remember_s = remember_s
        self._clock = clock
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()
        self._asking: dict[bytes, asyncio.Future[_Seen]] = {}
        self._any_key: bool | None = None
        self._none_until = 0.0
        self._verifying = 0
        # Guesses at secrets keep one thread busy and not the one that looks at the keys which are known.
        self._lookups = ThreadPoolExecutor(1, thread_name_prefix="keys")
        self._argon2 = ThreadPoolExecutor(1, thread_name_prefix="argon2")

    async def admit(self, authorization: str | None, scope: Scope) -> Key | None:
        if authorization is None:
            await self._without_key()
            return None
        digest = hashlib.sha256(authorization.encode("utf-8", "surrogateescape")).digest()
        seen = self._seen.get(digest)
        if seen is None or seen.until <= self._clock():
            scheme, _, text = authorization.partition(" ")
            seen = await self._ask(digest, text.strip() if scheme.lower() == "bearer" else "", seen)
        if seen.key is None:
            raise Turned(401, "the key is not valid")
        if scope not in seen.key.scopes:
            raise Turned(403, f"the key {seen.key.key_id} is for {', '.join(sorted(seen.key.scopes))}, this needs {scope}")
        return seen.key

    def close(self) -> None:
        for threads in (self._lookups, self._argon2):
            threads.shutdown(wait=False, cancel_futures=True)
        if self._engine is not None:
            self._engine.dispose()

    async def _without_key(self) -> None:
        """As long as there is no key, this machine's own programs need none."""
        if self._any_key is not True and self._none_until <= self._clock():
            try:
                self._any_key = await self._run(self._lookups, self._look_for_any)
            except Retry as away:
                if self._any_key is None:
                    raise _away(away) from away
            self._none_until = self._clock() + self._remember_s
        if self._any_key or not self._loopback:
            raise Turned(401, "send Authorization: Bearer sk_..., a key that `slipstream keys create` made")

    async def _ask(self, digest: bytes, text: str, before: _Seen | None) -> _Seen:
        """Many requests with one key ask once."""
        asking = self._asking.get(digest)
        if asking is None:
            asking = self._asking[digest] = asyncio.ensure_future(self._look(text, before))
            asking.add_done_callback(lambda _: self._asking.pop(digest, None))
        try:
            seen = await asyncio.shield(asking)
        except Retry as away:
            if before is None or before.key is None or self._clock() - before.known_at > GRACE_S:
                raise _away(away) from away
            logger.warning("the keys cannot be looked up, %s is let in as before: %s", before.key.key_id, away)
            seen = _Seen(before.key, self._clock() + self._remember_s, before.known_at)
        self._seen[digest] = seen
        self._seen.move_to_end(digest)
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return seen

    async def _look(self, text: str, before: _Seen | None) -> _Seen:
        """The secret is verified again only if its row is another."""
        parsed = parse_key(text)
        key = None if parsed is None else await self._run(self._lookups, lambda: find_key(self._database(), parsed[0]))
        if parsed is None or key is None or key.revoked_ms is not None:
            key = None
        elif not (before and before.key and before.key.hashed == key.hashed):
            key = key if await self._verify(key, parsed[1]) else None
        now = self._clock()
        return _Seen(key, now + self._remember_s, now)

    async def _verify(self, key: Key, secret: str) -> bool:
        if self._verifying >= WAITING:
            raise Turned(503, "too many keys wait to be verified", 1)
        self._verifying += 1
        try:
            return await self._run(self._argon2, lambda: is_secret_of(key, secret))
        finally:
            self._verifying -= 1

    @staticmethod
    async def _run(threads: ThreadPoolExecutor, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def _look_for_any(self) -> bool:
        return any_key(self._database())

    def _database(self) -> Engine:
        if self._engine is None:
            self._engine = self._open_database()
        return self._engine


def _away(reason: Retry) -> Turned:
    logger.warning("nobody can come in: %s", reason)
    return Turned(503, "keys cannot be looked up at the moment, try again", 1)
