"""MLflow hears of every checkpoint, sooner or later; its absence holds nothing up."""

from __future__ import annotations

import time

import pytest

from contracts.topics import CHECKPOINTS
from infra.settings import Settings
from infra.tracking import Tracking
from learner.loop import Learner
from learner.publish import Publisher
from learner.surroundings import Surroundings
from tests.unit.learner.conftest import World


def learner_with(world: World, mlflow: str, retry_s: float) -> tuple[Learner, Publisher, Tracking]:
    import threading

    tracking = Tracking(Settings(home=world.home, mlflow_url=mlflow))
    publisher = Publisher(world.engine, tracking, lambda: world.now, retry_s)
    around = Surroundings(world.engine, world.artifacts, world.config, lambda: world.now, threading.Event())
    return Learner(around, world.policies, world.log, publisher), publisher, tracking


@pytest.mark.timeout(400)
def test_away_then_back(fed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    learner, publisher, _ = learner_with(fed, "http://127.0.0.1:9", 0.0)
    began = time.monotonic()
    learner.tick("tab")
    assert time.monotonic() - began < 60 and fed.cycles()[0].state == "sealed"
    publisher.wait(100)
    assert [row.published_ms for row in fed.checkpoints()] == [None, None]
    assert sum(fed.log.ends(CHECKPOINTS.name).values()) == 2, "the topic does not wait for MLflow"

    learner, publisher, tracking = learner_with(fed, f"sqlite:///{fed.home / 'mlflow.db'}", 0.0)
    learner.tick("tab")
    publisher.wait(200)
    assert all(row.published_ms is not None for row in fed.checkpoints())
    tracking.mirror("tab", "tab-v0001", "live", {"champion": True})
    assert tracking.alias("tab", "champion") == "tab-v0001"
    assert sum(fed.log.ends(CHECKPOINTS.name).values()) == 2
