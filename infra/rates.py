"""How much a key may send: counted here at once, settled with the other processes through Redis in the background.

Enters: what a key spends. Leaves: how long it must wait, 0 when it need not. Each process by itself never lets more through than
the rate allows; together they overshoot by what they let through between two settlements. Redis away: each process's own count
holds.

A window that has anything left takes a whole batch, so that a batch larger than the rate is slow and not impossible. The count of
a process is a plain dict: the library's own keeps a thread alive for it.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from limits import RateLimitItem, RateLimitItemPerSecond
from limits.errors import StorageError
from limits.storage import RedisStorage
from limits.strategies import FixedWindowRateLimiter

logger = logging.getLogger(__name__)

WINDOW_S = 10


@dataclass(slots=True)
class _Window:
    ends_at: float
    spent: int


class Rates:
    """`redis`: the address of what several processes share, None for none. Thread-safe."""

    def __init__(self, redis: str | None, window_s: int = WINDOW_S, clock: Callable[[], float] = time.time) -> None:
        self._window_s = window_s
        self._clock = clock
        self._lock = Lock()
        self._windows: dict[str, _Window] = {}
        self._shut_until: dict[str, float] = {}
        self._unsettled: Counter[tuple[str, float]] = Counter()
        self._shared: FixedWindowRateLimiter | None = None
        self._away = False
        if redis is not None:
            storage = RedisStorage(
                redis, key_prefix="slipstream:rates", wrap_exceptions=True, socket_timeout=0.5, socket_connect_timeout=0.5
            )
            self._shared = FixedWindowRateLimiter(storage)

    def wait_s(self, key_id: str, rate: float) -> float:
        """Seconds until this key may send again."""
        now = self._clock()
        shut = self._shut_until.get(key_id, 0.0) - now
        window = self._windows.get(key_id)
        if window is not None and window.ends_at > now and window.spent >= _amount(rate, self._window_s):
            return max(shut, window.ends_at - now)
        return max(0.0, shut)

    def spend(self, key_id: str, rate: float, number: int) -> None:
        """After `wait_s` said 0."""
        now = self._clock()
        with self._lock:
            window = self._windows.get(key_id)
            if window is None or window.ends_at <= now:
                window = self._windows[key_id] = _Window(now + self._window_s, 0)
            window.spent += number
            self._unsettled[key_id, rate] += number

    def settle(self) -> None:
        """Tell the others what was spent here, hear whether all together have spent it all. Called now and then, in a thread."""
        with self._lock:
            spent, self._unsettled = self._unsettled, Counter()
            now = self._clock()
            self._windows = {key: window for key, window in self._windows.items() if window.ends_at > now}
            self._shut_until = {key: until for key, until in self._shut_until.items() if until > now}
        if self._shared is None:
            return
        try:
            for (key_id, rate), number in spent.items():
                item = self._item(rate)
                self._shared.hit(item, key_id, cost=number)
                stats = self._shared.get_window_stats(item, key_id)
                if stats.remaining <= 0:
                    self._shut_until[key_id] = stats.reset_time
            self._away = False
        except StorageError as error:
            if not self._away:
                logger.warning("Redis is away (%s); each process limits by its own count", error)
            self._away = True

    def _item(self, rate: float) -> RateLimitItem:
        return RateLimitItemPerSecond(_amount(rate, self._window_s), self._window_s)


def _amount(rate: float, window_s: int) -> int:
    return max(1, math.floor(rate * window_s))
