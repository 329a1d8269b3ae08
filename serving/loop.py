"""The gateway process: the door in the main thread, a watch on the routing, and the upkeep of what waits to be written.

Enters: `Rollout`s from the cache and the database, HTTP requests. Leaves: answers and turns. When cache, database or log are
away the last routing serves on. A thread that crashes stops the process, which the supervisor starts again.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping

from contracts.errors import Poison, Retry
from contracts.policy import Policy
from contracts.record import Name
from contracts.rollout import Rollout
from contracts.topics import TURNS
from infra.cache import RoutingCache
from infra.clock import system_clock
from infra.db.engine import open_db, reading
from infra.db.query import Engine as Database
from infra.db.tables.registry import RolloutRow
from infra.eventlog.open import open_log
from infra.http import bind, serve
from infra.policies import load_policies
from infra.settings import Settings, load
from infra.spool import Spool
from infra.stream import patiently
from serving.answer import Desk, Served
from serving.capture import Capture
from serving.config import ServingConfig
from serving.consent import People
from serving.counts import Counts
from serving.engines import ENGINES
from serving.gateway import make_gateway
from serving.replica import Replica
from serving.split import Router
from serving.swap import Swap

logger = logging.getLogger(__name__)


def answer(settings: Settings, stop: threading.Event) -> None:
    config = load(ServingConfig)
    policies = load_policies(settings)
    listener = bind(settings.host, settings.gateway_port, "the gateway")
    try:
        for attempt in patiently(stop):
            with attempt:
                database, log = open_db(settings.database), open_log(settings)
                replica = Replica(database, config.replica or _name(settings), system_clock)
                boot, counts, people = replica.boot(), Counts(), People(settings.home, database)
                capture = Capture(log, Spool(settings.spool, f"boot-{boot}", TURNS.name), boot, counts, config.gather_ms)
    except Retry:
        if stop.is_set():
            return
        raise
    served = {name: serve_policy(policy, database, replica, config) for name, policy in policies.items()}
    desk = Desk(served, capture, counts, people, system_clock, config.load_seconds, config.answer_seconds)
    watch = Watch(served, database, RoutingCache(settings), config)
    threads = _Threads(stop)
    threads.start("watch", watch.look, config.route_seconds)
    threads.start("people", people.refresh, config.people_seconds)
    threads.start("upkeep", lambda: upkeep(capture, counts, replica, database), config.flush_seconds)
    try:
        serve(make_gateway(desk, config.max_body_kb * 1024), listener, stop)
    finally:
        stop.set()
        threads.join()
        for one in served.values():
            one.swap.close()
            one.engine.close()
        capture.close()
        upkeep(capture, counts, replica, database)
        log.close()


def serve_policy(policy: Policy, database: Database, replica: Replica, config: ServingConfig) -> Served:
    engine = ENGINES.get(policy.serving.engine)(policy)
    swap = Swap(policy, engine, database, replica, config.max_versions, config.retry_seconds)
    return Served(policy, engine, swap, Router(config.episodes))


def upkeep(capture: Capture, counts: Counts, replica: Replica, database: Database) -> None:
    """Write what waits; each part on its own, because each may be away on its own."""
    for part in (capture.drain, replica.flush, lambda: counts.flush(database)):
        try:
            part()
        except Retry as away:
            logger.debug("waiting: %s", away)
        except OSError as error:  # a full disk must not end what still answers
            logger.warning("this disk is of no use now: %s", error.strerror or error)


class Watch:
    """Keeps each policy's versions as its newest routing wants them."""

    def __init__(self, served: Mapping[str, Served], database: Database, cache: RoutingCache, config: ServingConfig) -> None:
        self._served = served
        self._database = database
        self._cache = cache
        self._sql_seconds = config.sql_seconds
        self._newest: dict[str, Rollout] = {}
        self._sql_due = 0.0

    def look(self) -> None:
        rows_due = time.monotonic() >= self._sql_due
        for name, one in self._served.items():
            cached = self._cache.get(name)
            stored = self._stored(name) if rows_due or cached is None else None
            known = [rollout for rollout in (cached, stored, self._newest.get(name)) if rollout is not None]
            if known:
                self._newest[name] = max(known, key=lambda rollout: rollout.revision)
                self._follow(one, self._newest[name])
        if rows_due:
            self._sql_due = time.monotonic() + self._sql_seconds

    def _follow(self, one: Served, rollout: Rollout) -> None:
        wanted = _named(rollout)
        for version in wanted:
            if version not in one.swap.ready:
                one.swap.want(version)
        before = one.router.rollout
        one.router.apply(rollout, one.swap.ready)
        now = one.router.rollout
        if now is not None and now != before:
            logger.info("%s: champion %s, candidate %s at %.3f", now.policy, now.champion, now.candidate, now.share)
        one.swap.evict([*wanted, *_named(now)])

    def _stored(self, policy: str) -> Rollout | None:
        try:
            with reading(self._database) as session:
                row = session.get(RolloutRow, policy)
            return None if row is None else Rollout.decode(row.body)
        except Retry as away:
            logger.debug("the database is away, the last routing serves on: %s", away)
        except Poison as poison:
            logger.error("the routing of %s in the database cannot be read: %s", policy, poison)
        return None


class _Threads:
    """Work that is repeated until `stop`; a failure sets `stop` and is raised by `join`."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def start(self, name: str, work: Callable[[], None], every_s: float) -> None:
        thread = threading.Thread(target=self._repeat, args=(work, every_s), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=10.0)
        if self._failures:
            raise self._failures[0]

    def _repeat(self, work: Callable[[], None], every_s: float) -> None:
        try:
            while not self._stop.is_set():
                work()
                self._stop.wait(every_s)
        except BaseException as failure:
            self._failures.append(failure)
            self._stop.set()


def _named(rollout: Rollout | None) -> list[str]:
    return [] if rollout is None else [version for version in (rollout.champion, rollout.candidate) if version is not None]


def _name(settings: Settings) -> Name:
    host = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in socket.gethostname()).strip("-.")
    return f"{host[:64] or 'gateway'}:{settings.gateway_port}"
