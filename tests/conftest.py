"""Makers of records, shared by all tests: each gives a whole record with sensible values, and takes what the test cares about."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from contracts.outcome import Outcome
from contracts.policy import Policy
from contracts.turn import Sampling, Turn, VersionSpan
from infra.policies import load_policy

MUST_RUN = os.environ.get("TESTS_MUST_RUN") == "1"
"""Where the outside systems are known to be there, a test that skips has not found one: that is a failure."""

settings.register_profile("patient", settings(), deadline=None)  # a busy machine may take long for one example, and is right
settings.load_profile("patient")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    outside = item.get_closest_marker("integration") or item.get_closest_marker("chaos")
    if MUST_RUN and outside and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"may not skip here, but: {reason}"
    return report


def make_turn(episode_id: str = "ep-1", n: str = "1-0", at_s: float = 0.0, **changes: Any) -> Turn:
    version = changes.pop("version", "tab-v0000")
    completion = changes.pop("completion_ids", (7, 8, 2))
    fields: dict[str, Any] = {
        "turn_id": f"{episode_id}.{n}",
        "episode_id": episode_id,
        "policy": "tab",
        "subject": "subject-1",
        "consent": True,
        "prompt_ids": (1, 2, 3),
        "completion_ids": completion,
        "logps": tuple(-0.5 for _ in completion),
        "spans": (VersionSpan(version=version, start=0, end=len(completion)),),
        "text": "foo",
        "sampling": Sampling(temperature=0.4, max_tokens=10),
        "finish": "stop",
        "arm": "champion",
        "propensity": 1.0,
        "started_at": EPOCH + timedelta(seconds=at_s),
        "latency_ms": 12.0,
    }
    return Turn(**{**fields, **changes})


def make_outcome(
    kind: str, event_id: str, episode_id: str = "ep-1", n: str | None = "1-0", at_s: float = 1.0, **changes: Any
) -> Outcome:
    defaults: dict[str, dict[str, Any]] = {
        "accepted": {"characters": 3},
        "edited": {"surviving": 0.5},
        "persisted": {"after_s": 15.0, "surviving": 1.0},
    }
    happening = {"kind": kind, **defaults.get(kind, {}), **changes.pop("happening", {})}
    fields: dict[str, Any] = {
        "event_id": event_id,
        "policy": "tab",
        "episode_id": episode_id,
        "turn_id": None if n is None else f"{episode_id}.{n}",
        "occurred_at": EPOCH + timedelta(seconds=at_s),
        "received_at": EPOCH + timedelta(seconds=at_s + 0.1),
        "happening": happening,
    }
    return Outcome(**{**fields, **changes})


class Hands:
    """A clock that a test moves."""

    def __init__(self, now: datetime = EPOCH) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture(name="turn_of")
def _turn_of() -> Callable[..., Turn]:
    return make_turn


@pytest.fixture(name="outcome_of")
def _outcome_of() -> Callable[..., Outcome]:
    return make_outcome


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def tab_policy() -> Policy:
    """The demo's policy: short windows, small steps."""
    return load_policy(REPOSITORY / "policies" / "demo" / "tab.yaml")
