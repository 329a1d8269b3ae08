"""The joiner's process: reads turns, outcomes and refusals, closes what has gone quiet, trims the log."""

from __future__ import annotations

import gc
import threading
import time

from contracts.errors import StartError
from contracts.topics import EPISODES, OUTCOMES, REFUSALS, TURNS
from infra.clock import system_clock, to_ms
from infra.db.engine import open_db
from infra.eventlog.open import open_log
from infra.eventlog.port import EventLog
from infra.policies import load_policies
from infra.settings import Settings, load
from infra.stream import Stream
from ingest.config import IngestConfig
from ingest.join.joiner import BATCH, GROUP, Joiner


def join(settings: Settings, stop: threading.Event) -> None:
    config = load(IngestConfig)
    log = open_log(settings)
    log.ensure([TURNS, OUTCOMES, EPISODES])
    _check_partitions(log)
    engine = open_db(settings.database)
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
    seldom_look_for_cycles()
    try:
        stream.run(stop, config.tick_seconds, tick, BATCH)
    finally:
        log.close()


def seldom_look_for_cycles() -> None:
    """A batch makes some ten thousand objects and none of them in a cycle: to look for cycles after every 700, as the interpreter
    does by itself, takes a fifth of the joiner's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _check_partitions(log: EventLog) -> None:
    """An episode's turns and outcomes must meet in one reader, which tells them by the number of their partition."""
    turns, outcomes = len(log.ends(TURNS.name)), len(log.ends(OUTCOMES.name))
    if turns != outcomes:
        raise StartError(
            f"topic {TURNS.name} has {turns} partitions and topic {OUTCOMES.name} has {outcomes}: they must have equally many."
            " Give the smaller one more."
        )
