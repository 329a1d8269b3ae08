"""The joiner's process: reads turns, outcomes and refusals, closes what has gone quiet, trims the log."""

from __future__ import annotations

import threading
import time

from contracts.topics import EPISODES, OUTCOMES, REFUSALS, TURNS
from infra.clock import system_clock, to_ms
from infra.db.engine import open_db
from infra.eventlog.open import open_log
from infra.policies import load_policies
from infra.settings import Settings
from infra.stream import Stream
from ingest.config import IngestConfig
from ingest.join.joiner import GROUP, Joiner


def join(settings: Settings, stop: threading.Event) -> None:
    log = open_log(settings)
    log.ensure([EPISODES])
    engine = open_db(settings.database)
    config = IngestConfig()
    joiner = Joiner(load_policies(settings), system_clock)
    trimmed = time.monotonic()

    def tick() -> None:
        nonlocal trimmed
        now_ms = to_ms(system_clock())
        joiner.close_quiet(engine, stream.watermark_ms(now_ms))
        if time.monotonic() - trimmed > config.trim_seconds:
            log.trim()
            trimmed = time.monotonic()

    stream = Stream(engine, log, GROUP, (TURNS, OUTCOMES, REFUSALS), joiner.apply)
    try:
        stream.run(stop, config.tick_seconds, tick)
    finally:
        log.close()
