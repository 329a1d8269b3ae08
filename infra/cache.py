"""What must be fast and may be lost, in Redis: the hot copy of each policy's routing.

Enters and leaves: `Rollout` records. Redis away means a miss, never an error: the SQL row is the truth and the caller has it.
"""

from __future__ import annotations

import logging

import redis

from contracts.errors import Poison
from contracts.rollout import Rollout
from infra.secrets import load_secrets
from infra.settings import Settings

logger = logging.getLogger(__name__)


def redis_url(settings: Settings) -> str:
    """The address with the password that guards the embedded server; a configured address is used as it is."""
    if not settings.runs_own_redis:
        return settings.redis
    password = load_secrets(settings.home).redis_password
    return settings.redis.replace("redis://", f"redis://:{password}@", 1)


class RoutingCache:
    """The newest `Rollout` of each policy, put by the registry and read by every gateway."""

    def __init__(self, settings: Settings) -> None:
        self._redis = redis.Redis.from_url(redis_url(settings), socket_timeout=0.5, socket_connect_timeout=0.5)

    def put(self, rollout: Rollout) -> bool:
        try:
            self._redis.set(_key(rollout.policy), rollout.encode())
        except redis.RedisError as error:
            logger.warning("Redis is away (%s); gateways read the routing from the database", error)
            return False
        return True

    def get(self, policy: str) -> Rollout | None:
        try:
            found = self._redis.get(_key(policy))
        except redis.RedisError:
            return None
        if not isinstance(found, bytes):
            return None
        try:
            return Rollout.decode(found)
        except Poison as poison:
            logger.warning("ignored the cached routing of %s: %s", policy, poison)
            return None


def _key(policy: str) -> str:
    return f"slipstream:routing:{policy}"
