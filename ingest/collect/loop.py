"""The collector's process: its socket, its log, its application."""

from __future__ import annotations

import threading

from contracts.topics import OUTCOMES, REFUSALS
from infra.clock import system_clock
from infra.eventlog.open import open_log
from infra.http import bind, serve
from infra.policies import load_policies
from infra.settings import Settings
from ingest.collect.app import make_app
from ingest.config import IngestConfig


def collect(settings: Settings, stop: threading.Event) -> None:
    listener = bind(settings.host, settings.collector_port, "the collector")
    log = open_log(settings)
    log.ensure([OUTCOMES, REFUSALS])
    try:
        serve(make_app(log, load_policies(settings), IngestConfig(), system_clock), listener, stop)
    finally:
        log.close()
