"""The Python SDK and a real collector: each event arrives once, also when the collector is killed; without consent only a count."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream_events import Client, Limits, Refused
from tests.integration.live_collector import LiveCollector

pytestmark = pytest.mark.integration

LIMITS = Limits(linger_s=0.05, wait_s=0.5)


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[LiveCollector]:
    collector = LiveCollector(tmp_path / "home")
    collector.start()
    yield collector
    collector.kill()


@pytest.mark.timeout(240)
def test_each_event_arrives_once_though_the_collector_is_killed(collector, tmp_path):
    with Client(collector.url, "tab", spool=tmp_path / "spool", limits=LIMITS) as client:
        told = []
        for n in range(3_000):
            told.append(client.accepted(f"ep-py-{n // 10}.1-0", characters=n))
            if n % 10 == 9:
                time.sleep(0.002)
            if n == 1_000:
                collector.kill()
            if n == 2_000:
                collector.start()
        assert client.flush(60)
        stats = client.stats
    collector.stop()
    assert stats.taken == stats.told == 3_000 and stats.dropped == {} and stats.retries > 0 and stats.spooled > 0
    arrived = {outcome.event_id: outcome for outcome in collector.outcomes()}
    assert [arrived[event_id].happening.characters for event_id in told] == list(range(3_000))
    assert len(arrived) == 3_000 and collector.refusals() == []


def test_a_refusal_is_heard_and_what_nobody_agreed_to_is_only_counted(collector, tmp_path):
    heard: list[Refused] = []
    with Client(collector.url, "tab", spool=tmp_path / "spool", limits=LIMITS, on_refused=heard.append) as client:
        good = client.thumbs("ep-1.1-0", up=True)
        client.edited("ep-1.1-0", surviving=7.0)
        client.follow_up("ep-1.1-0", text="my secret", consent=False)
        assert client.flush(60)
        stats = client.stats
    collector.stop()
    assert (stats.taken, stats.refused, stats.withheld) == (1, 1, 1)
    assert [(one.code, one.reason) for one in heard] == [(422, "bad_field")] and "surviving" in heard[0].detail
    assert [outcome.event_id for outcome in collector.outcomes()] == [good]
    assert sorted(refusal.reason for refusal in collector.refusals()) == ["bad_field", "no_consent"]
    assert not any(b"my secret" in file.read_bytes() for file in (tmp_path).rglob("*") if file.is_file())
