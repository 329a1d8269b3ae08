"""A whole collector in this process, on real parts, and events as clients send them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from contracts.outcome import Outcome, Refusal
from contracts.topics import OUTCOMES, REFUSALS, Topic
from infra.clock import Clock, system_clock
from infra.db.engine import open_db
from infra.door import Door
from infra.eventlog.port import EventLog
from infra.rates import Rates
from ingest.collect.app import make_app
from ingest.collect.intake import Intake
from ingest.collect.request import Collector
from ingest.config import IngestConfig

ONE = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"


@contextmanager
def collecting(
    log: EventLog,
    folder: Path,
    policies: Collection[str] = ("tab",),
    clock: Clock = system_clock,
    loopback: bool = True,
    **knobs: Any,
) -> Iterator[TestClient]:
    """Keys lie in `<folder>/keys.db`, the spool in `<folder>/spool`; `client.app.state.intake` drains it."""
    config = IngestConfig(**knobs)
    intake = Intake(log, folder / "spool", config)
    door = Door(lambda: open_db(f"sqlite:///{folder / 'keys.db'}"), loopback, config.key_seconds)
    app = make_app(Collector(intake, door, Rates(None), policies, config, clock))
    app.state.intake = intake
    try:
        with TestClient(app) as client:
            yield client
    finally:
        intake.close()
        door.close()


def cloud_event(kind: str = "accepted", event_id: str = "e1", **changes: Any) -> dict[str, Any]:
    """`changes`: attributes; None leaves one out."""
    data = {"characters": 4} if kind == "accepted" else None
    event = {
        "specversion": "1.0",
        "id": event_id,
        "source": "/test/1.0",
        "type": f"slipstream.{kind}",
        "time": "2026-01-01T00:00:00.5Z",
        "policy": "tab",
        "turnid": "ep-1.1-0",
        "data": data,
        **changes,
    }
    return {name: value for name, value in event.items() if value is not None}


def send(client: TestClient, events: Any, **headers: str) -> Any:
    """A list as a batch, anything else as one event, bytes as they are."""
    body = events if isinstance(events, bytes) else json.dumps(events).encode()
    kind = BATCH if isinstance(events, list) or body.lstrip()[:1] == b"[" else ONE
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post("/v1/events", content=body, headers={"content-type": kind, **named})


def outcomes(log: EventLog) -> list[Outcome]:
    return [Outcome.decode(value) for value in lines(log, OUTCOMES)]


def refusals(log: EventLog) -> list[Refusal]:
    return [Refusal.decode(value) for value in lines(log, REFUSALS)]


def lines(log: EventLog, topic: Topic) -> list[bytes]:
    """All there is, as it lies there."""
    log.ensure([topic])
    total = sum(log.ends(topic.name).values())
    consumer = log.consumer(f"test-{topic.name}", [topic.name])
    found: list[bytes] = []
    while len(found) < total:
        found += [message.value for message in consumer.poll(0.2)]
    consumer.close()
    return found
