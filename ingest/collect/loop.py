"""The collector's process: its socket, its log, its application, and the upkeep of what waits to be written or settled.

It starts and takes events while log, database or Redis are away: see `infra.append`, `infra.door` and `infra.rates`.
"""

from __future__ import annotations

import gc
import ipaddress
import logging
import threading
from collections.abc import Callable

from contracts.errors import Retry
from infra.cache import redis_url
from infra.clock import system_clock
from infra.db.engine import open_db
from infra.door import Door
from infra.eventlog.open import open_log
from infra.http import bind, serve
from infra.policies import load_policies
from infra.rates import Rates
from infra.settings import Settings, load
from infra.stream import patiently
from ingest.collect.app import make_app
from ingest.collect.intake import Intake
from ingest.collect.request import Collector
from ingest.config import IngestConfig

logger = logging.getLogger(__name__)

SETTLE_S = 0.25
TOLD_EVERY_S = 60.0


def collect(settings: Settings, stop: threading.Event) -> None:
    config = load(IngestConfig)
    policies = frozenset(load_policies(settings))
    listener = bind(settings.host, settings.collector_port, "the collector")
    try:
        for attempt in patiently(stop):
            with attempt:
                log = open_log(settings)
    except Retry:
        if stop.is_set():
            return
        raise
    intake = Intake(log, settings.spool, config)
    door = Door(lambda: open_db(settings.database), is_loopback(settings.host), config.key_seconds)
    rates = Rates(redis_url(settings))
    collector = Collector(intake, door, rates, policies, config, system_clock)
    threads = [
        _repeat("drain", lambda: _drain(intake), config.drain_seconds, stop),
        _repeat("settle", rates.settle, SETTLE_S, stop),
        _repeat("tell", lambda: _tell(collector), TOLD_EVERY_S, stop),
    ]
    gc.freeze()  # what is there by now stays; looking through it again and again would cost every request something
    try:
        serve(make_app(collector), listener, stop)
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
        intake.close()
        door.close()
        log.close()


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _drain(intake: Intake) -> None:
    try:
        drained = intake.drain()
    except Retry as away:
        logger.debug("the spool waits: %s", away)
        return
    if drained:
        logger.info("%d spooled entries are in the log", drained)


def _tell(collector: Collector) -> None:
    turned, collector.turned = collector.turned, type(collector.turned)()
    if turned:
        logger.info("requests of which nothing was taken, by status: %s", dict(sorted(turned.items())))


def _repeat(name: str, work: Callable[[], None], every_s: float, stop: threading.Event) -> threading.Thread:
    """Until `stop`; an error that nobody foresaw is logged and the work goes on, for events are better spooled than refused."""

    def run() -> None:
        while not stop.is_set():
            try:
                work()
            except Exception:
                logger.exception("%s failed", name)
            stop.wait(every_s)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
