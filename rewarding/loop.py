"""The rewarding process: reads episode revisions, writes rewards and samples."""

from __future__ import annotations

import threading

from contracts.topics import EPISODES
from infra.db.engine import open_db
from infra.eventlog.open import open_log
from infra.policies import load_policies
from infra.settings import Settings, load
from infra.stream import Stream
from rewarding.config import RewardingConfig
from rewarding.rewarder import GROUP, Rewarder


def reward(settings: Settings, stop: threading.Event) -> None:
    config = load(RewardingConfig)
    log = open_log(settings)
    engine = open_db(settings.database)
    rewarder = Rewarder(load_policies(settings))
    stream = Stream(engine, log, GROUP, (EPISODES,), rewarder.apply)
    try:
        stream.run(stop, config.tick_seconds, lambda: rewarder.refresh(engine))
    finally:
        log.close()
