"""How much a key may send: counted here at once, settled with the other processes through Redis in the background.

Enters: what a key spends. Leaves: how long it must wait, 0 when it need not. A window that has anything left takes a whole batch,
so that a batch larger than the rate is slow and not impossible; what it took beyond the window's share is owed in the windows that
follow. So in the long run each process by itself lets through the rate, and at most once more what it let in last. Together they
overshoot by what they let in between two settlements, and then owe that too. Redis away: each process's own account holds.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import redis

logger = logging.getLogger(__name__)

WINDOW_S = 10

LONGEST_WAIT_S = 3600.0
"""Whoever owes more hears it again in an hour; nothing of it is forgiven."""

_SPEND = """
local share, window, number = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local known = redis.call('HMGET', KEYS[1], 'ends_at', 'spent')
local ends_at, spent = tonumber(known[1] or 0), tonumber(known[2] or 0)
if ends_at <= now then
  local passed = math.floor((now - ends_at) / window) + 1
  ends_at, spent = ends_at + passed * window, spent - passed * share
  if spent <= 0 then
    ends_at, spent = now + window, 0
  end
end
spent = spent + number
local clear = ends_at + math.floor(spent / share) * window - now
redis.call('HSET', KEYS[1], 'ends_at', string.format('%.6f', ends_at), 'spent', string.format('%.6f', spent))
redis.call('PEXPIRE', KEYS[1], math.min(math.ceil(clear * 1000), 1e12))
return string.format('%.6f', clear - window)
"""
"""`_Account.spend` and `wait_s` on the account that all share, by the clock of the server."""


@dataclass(slots=True)
class _Account:
    """`share`: what a window may spend. `spent`: in the window that ends at `ends_at`, with what was owed when it began."""

    share: float
    window_s: int
    ends_at: float
    spent: float = 0.0

    def spend(self, number: int, now: float) -> None:
        if self.ends_at <= now:
            passed = math.floor((now - self.ends_at) / self.window_s) + 1
            self.ends_at += passed * self.window_s
            self.spent -= passed * self.share
            if self.spent <= 0:
                self.ends_at, self.spent = now + self.window_s, 0.0
        self.spent += number

    def wait_s(self, now: float) -> float:
        """Until a window begins that has something left."""
        return self.ends_at + (math.floor(self.spent / self.share) - 1) * self.window_s - now


class Rates:
    """`redis_url`: the address of what several processes share, None for none. Thread-safe."""

    def __init__(self, redis_url: str | None, window_s: int = WINDOW_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._window_s = window_s
        self._clock = clock
        self._lock = Lock()
        self._accounts: dict[str, _Account] = {}
        self._shut_until: dict[str, float] = {}
        self._unsettled: Counter[tuple[str, float]] = Counter()
        self._shared: redis.Redis | None = None
        self._away = False
        if redis_url is not None:
            self._shared = redis.Redis.from_url(redis_url, socket_timeout=0.5, socket_connect_timeout=0.5)
            self._spend = self._shared.register_script(_SPEND)

    def wait_s(self, key_id: str) -> float:
        """Seconds until this key may send again, as far ahead as it is told."""
        now = self._clock()
        account = self._accounts.get(key_id)
        own = 0.0 if account is None else account.wait_s(now)
        return min(LONGEST_WAIT_S, max(0.0, own, self._shut_until.get(key_id, now) - now))

    def spend(self, key_id: str, rate: float, number: int) -> None:
        """After `wait_s` said 0."""
        now = self._clock()
        with self._lock:
            account = self._accounts.get(key_id)
            if account is None:
                account = self._accounts[key_id] = _Account(rate * self._window_s, self._window_s, now + self._window_s)
            account.spend(number, now)
            self._unsettled[key_id, rate] += number

    def settle(self) -> None:
        """Tell the others what was spent here, hear whether all together have spent it all. Called now and then, in a thread."""
        with self._lock:
            spent, self._unsettled = self._unsettled, Counter()
            now = self._clock()
            self._accounts = {key: each for key, each in self._accounts.items() if each.wait_s(now) > -self._window_s}
            self._shut_until = {key: until for key, until in self._shut_until.items() if until > now}
        if self._shared is None:
            return
        try:
            for (key_id, rate), number in spent.items():
                share = rate * self._window_s
                wait_s = float(self._spend(keys=[f"slipstream:rates:{key_id}"], args=[share, self._window_s, number]))
                if wait_s > 0:
                    self._shut_until[key_id] = self._clock() + wait_s
            self._away = False
        except redis.RedisError as error:
            if not self._away:
                logger.warning("Redis is away (%s); each process limits by its own count", error)
            self._away = True
