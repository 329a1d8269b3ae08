"""The Python SDK towards the collector: what is sent, when, how often, and what becomes of each answer."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.outcome import KINDS, Outcome
from ingest.collect.decode import decode
from ingest.collect.pieces import cut
from slipstream_events import AsyncClient, Client, Limits, Refused, new_id, stable_id
from slipstream_events.answer import Then, judge
from slipstream_events.kinds import Teller
from tests.unit.ingest.sdk_server import Answer, Collector, all_taken, serving

QUICK = Limits(linger_s=0.02, wait_s=0.1, denied_wait_s=0.05, exit_s=1.0)
ABOUT = {"self", "turn", "about"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with serving(Collector()) as collector:
        yield collector


@pytest.fixture
def client(collector: Collector, tmp_path: Path) -> Iterator[Client]:
    with Client(collector.url, "tab", spool=tmp_path, limits=QUICK, source="/test/1") as client:
        yield client


def until(condition: Any, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


def accounted(client: Client) -> bool:
    stats = client.stats
    settled = stats.taken + stats.refused + stats.withheld + sum(stats.dropped.values())
    return stats.told == settled + stats.queued + stats.spooled - stats.recovered


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_a_method_with_the_fields_of_the_contract(kind: str):
    told = inspect.signature(getattr(Teller, kind)).parameters
    fields = {name: field for name, field in KINDS[kind].model_fields.items() if name != "kind"}
    assert set(told) - ABOUT == set(fields)
    for name, field in fields.items():
        assert (told[name].default is inspect.Parameter.empty) == field.is_required(), name
        if not field.is_required():
            assert told[name].default == field.default, name


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,20}", fullmatch=True)
COUNTS = st.integers(0, 10_000_000)
VALUES = {
    **{"tool": NAMES, "error": NAMES, "text": st.text(max_size=200), "surviving": st.floats(0, 1)},
    **dict.fromkeys(("characters", "passed", "failed", "errors"), COUNTS),
    **dict.fromkeys(("up", "ok", "valid", "whole"), st.booleans()),
    **dict.fromkeys(("after_s", "first_ms", "last_ms"), st.floats(0, 10_000_000)),
}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_contract_allows_travels_unchanged(collector, client, data):
    model = data.draw(st.sampled_from(list(KINDS.values())))
    optional = [name for name, field in model.model_fields.items() if name != "kind" and NoneType in get_args(field.annotation)]
    values = {name: VALUES[name] | st.none() if name in optional else VALUES[name] for name in model.model_fields if name != "kind"}
    happening = data.draw(st.builds(model, **values))
    fields = happening.model_dump(mode="json", exclude={"kind"})
    event_id = getattr(client, happening.kind)("ep-1.1-0", **fields)
    assert client.flush()
    event = next(event for event in reversed(collector.events) if event["id"] == event_id)
    assert event.get("data", {}) == fields
    (piece,) = cut(json.dumps([event]).encode(), batch=True)
    outcome = decode(piece, datetime.now(UTC), {"tab"}, 1 << 20).record
    assert isinstance(outcome, Outcome), outcome
    assert (outcome.event_id, outcome.turn_id, outcome.happening) == (event_id, "ep-1.1-0", happening)


def test_the_envelope_is_that_of_the_wire_format(collector, client):
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    client.accepted("ep-1.1-0", characters=4, at=noon, event_id="e1")
    client.closed(episode="ep-1")
    assert client.flush()
    first, second = collector.events
    assert first == {
        "specversion": "1.0",
        "id": "e1",
        "source": "/test/1",
        "type": "slipstream.accepted",
        "time": "2026-01-01T06:30:00+00:00",
        "policy": "tab",
        "turnid": "ep-1.1-0",
        "data": {"characters": 4, "whole": True},
    }
    assert second["episodeid"] == "ep-1" and "turnid" not in second and "data" not in second
    assert abs(datetime.fromisoformat(second["time"]) - datetime.now(UTC)) < timedelta(seconds=10)
    assert collector.requests[0].headers["content-type"] == "application/cloudevents-batch+json"
    assert "authorization" not in collector.requests[0].headers


@pytest.mark.parametrize("turn", ["ep-1.1-0", "ep-1.1-0-withheld"])
def test_without_consent_nothing_is_sent_but_that_something_happened(collector, client, turn):
    client.consent = turn.endswith("-withheld")  # the turn's own word is enough
    client.follow_up(turn, text="my secret")
    assert client.flush()
    (event,) = collector.events
    assert event.pop("id") and event == {
        "specversion": "1.0",
        "source": "/test/1",
        "type": "slipstream.follow_up",
        "policy": "tab",
        "consent": False,
    }
    (piece,) = cut(json.dumps([{**event, "id": "e1"}]).encode(), batch=True)
    assert decode(piece, datetime.now(UTC), {"tab"}, 65_536).record.reason == "no_consent"


def test_ids_are_version_7_uuids_in_the_order_of_time():
    ids = []
    for _ in range(3):
        ids.append(new_id())
        time.sleep(0.002)
    assert ids == sorted(ids) and len(set(ids)) == 3
    assert all(len(one) == 36 and one[14] == "7" and one[19] in "89ab" for one in ids)
    assert stable_id("a", "b") == stable_id("a", "b") != stable_id("ab", "")


def test_a_full_batch_goes_at_once_and_the_rest_after_the_linger(collector, tmp_path):
    limits = Limits(batch_events=10, linger_s=3.0)
    with Client(collector.url, "tab", spool=tmp_path, limits=limits) as client:
        client.shown("ep-1.1-0")
        assert client.flush()
        began = time.monotonic()
        for _ in range(25):
            client.shown("ep-1.1-0")
        until(lambda: len(collector.events) == 26)
        arrived = [(len(request.events), request.at - began) for request in collector.requests[1:]]
        assert [size for size, _ in arrived] == [10, 10, 5]
        assert arrived[1][1] < 2.5 < arrived[2][1]


def test_a_batch_is_compressed_and_the_key_goes_along(collector, tmp_path):
    with Client(collector.url, "tab", spool=tmp_path, key=lambda: "sk_1", limits=QUICK) as client:
        for _ in range(30):
            client.shown("ep-1.1-0")
        assert client.flush()
    assert len(collector.events) == 30
    assert any(request.headers.get("content-encoding") == "gzip" for request in collector.requests)
    assert all(request.headers["authorization"] == "Bearer sk_1" for request in collector.requests)


def test_a_collector_that_knows_no_gzip_gets_plain_text(collector, client):
    def answers(events):
        return all_taken(events) if refused else refused.append(1) or Answer(415)

    refused: list[int] = []
    collector.answers = answers
    client.follow_up("ep-1.1-0", text="x" * 3000)
    assert client.flush() and client.stats.taken == 1 and client.stats.dropped == {}
    assert [request.headers.get("content-encoding") for request in collector.requests] == ["gzip", None]


def test_a_refused_event_is_reported_and_counted_and_never_sent_again(collector, tmp_path):
    def answers(events):
        results = [{"id": event["id"], "status": "taken"} for event in events]
        for result, event in zip(results, events, strict=True):
            if event["type"] == "slipstream.edited":
                result.update(status="refused", code=422, reason="bad_field", detail="surviving: too much")
            if event["type"] == "slipstream.copied":
                result.update(id=None, status="refused", code=422, reason="no_consent", detail="")
        return Answer(207, {"results": results})

    def complain(refused: Refused) -> None:
        heard.append(refused)
        raise RuntimeError("the host's own mistake")

    heard: list[Refused] = []
    collector.answers = answers
    with Client(collector.url, "tab", spool=tmp_path, limits=QUICK, on_refused=complain) as client:
        client.shown("ep-1.1-0")
        bad = client.edited("ep-1.1-0", surviving=7)
        client.copied("ep-1.1-0", consent=False)
        assert client.flush()
        stats = client.stats
    assert (stats.taken, stats.refused, stats.withheld, stats.dropped) == (1, 1, 1, {})
    assert [(one.event["id"], one.code, one.reason) for one in heard] == [(bad, 422, "bad_field")]
    assert len(collector.events) == 3


def test_retry_after_is_respected_and_the_same_ids_come_again(collector, client):
    collector.answers = lambda events: (
        Answer(503, {"error": {}}, {"Retry-After": "1"}) if not collector.requests else all_taken(events)
    )
    event_id = client.shown("ep-1.1-0")
    assert client.flush(60)
    first, second = collector.requests
    assert second.at - first.at >= 0.95
    assert first.events == second.events and collector.ids == [event_id] and accounted(client)


def test_retry_after_may_be_a_date():
    verdict = judge(429, format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True), b"", 1)
    assert verdict.then is Then.AGAIN and verdict.wait_s is not None and 10 < verdict.wait_s <= 30
    assert judge(503, "Wed, 21 Oct 2015 07:28:00 GMT", b"", 1).wait_s == 0


def test_waits_grow_and_differ_from_client_to_client(collector, tmp_path):
    collector.answers = lambda events: Answer(503)
    gaps = []
    for name in ("a", "b"):
        with Client(collector.url, "tab", spool=tmp_path / name, limits=Limits(linger_s=0.0, wait_s=0.4)) as client:
            client.shown("ep-1.1-0")
            seen = len(collector.requests)
            until(lambda seen=seen: len(collector.requests) >= seen + 3)
            times = [request.at for request in collector.requests[seen : seen + 3]]
            gaps.append([later - earlier for earlier, later in itertools.pairwise(times)])
    assert all(gap[0] >= 0.12 and gap[1] >= 0.2 and sum(gap) < 10 for gap in gaps), gaps
    assert gaps[0] != gaps[1]


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_is_not_tried_for_ever(collector, tmp_path, status):
    collector.answers = lambda events: Answer(status)
    with Client(collector.url, "tab", spool=tmp_path, limits=QUICK, key="sk_old") as client:
        client.shown("ep-1.1-0")
        until(lambda: client.stats.dropped)
        time.sleep(0.5)
        assert client.stats.dropped == {"denied": 1} and len(collector.requests) == 3 and accounted(client)
        collector.answers = all_taken
        client.shown("ep-1.1-0")
        until(lambda: client.stats.taken == 1)


def test_a_batch_that_is_too_much_at_once_goes_in_halves(collector, client):
    collector.answers = lambda events: Answer(413) if len(events) > 3 else all_taken(events)
    told = [client.shown("ep-1.1-0") for _ in range(20)]
    assert client.flush() and sorted(collector.ids) == sorted(told) and accounted(client)
    collector.answers = lambda events: Answer(413)
    client.shown("ep-1.1-0")
    assert client.flush() and client.stats.dropped == {"too_large": 1}


def test_one_event_that_the_collector_fails_on_does_not_hold_up_the_others(collector, client):
    collector.answers = lambda events: Answer(500) if any(e["id"] == "poison" for e in events) else all_taken(events)
    told = [client.shown("ep-1.1-0", event_id="poison" if n == 7 else None) for n in range(8)]
    until(lambda: client.stats.taken == 7 and client.stats.dropped)
    assert client.stats.dropped == {"server_error": 1} and set(collector.ids) == set(told) - {"poison"}


def test_a_page_of_a_hotel_is_no_answer(collector, client):
    collector.answers = lambda events: Answer(200, b"<html>Welcome!</html>") if len(collector.requests) < 2 else all_taken(events)
    client.shown("ep-1.1-0")
    assert client.flush() and client.stats.taken == 1 and client.stats.retries == 2


@pytest.mark.parametrize(("status", "then"), [(400, Then.HOPELESS), (422, Then.HOPELESS), (302, Then.AGAIN), (502, Then.AGAIN)])
def test_the_rest_of_the_codes(status, then):
    assert judge(status, None, b"", 1).then is then


STRANGE = [b'{"results":[1]}', b'{"results":{}}', b'{"results":[{"status":"taken","code":"x"}]}', b"[]", b"NaN"]


@given(
    status=st.integers(100, 599),
    retry_after=st.none() | st.text() | st.sampled_from(["nan", "inf", "-5", "1e400", "Wed, 21 Oct 2015 07:28:00 GMT"]),
    body=st.binary()
    | st.sampled_from([b'{"results":[1]}', b'{"results":{}}', b'{"results":[{"status":"taken","code":"x"}]}', b"[]"]),
)
def test_every_answer_has_a_meaning(status, retry_after, body):
    verdict = judge(status, retry_after, body, 1)
    assert verdict.wait_s is None or 0.0 <= verdict.wait_s <= 3600.0
    assert (verdict.then is Then.SETTLED) == bool(verdict.fates)


STATUS = st.sampled_from([202, 202, 202, 503, 429, 413, 400, 500, 401])


@settings(max_examples=6, deadline=None)
@given(statuses=st.lists(STATUS, max_size=8), told=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_every_event_is_accounted_for_whatever_the_collector_answers(tmp_path_factory, statuses, told):
    script = list(statuses)
    limits = Limits(batch_events=4, linger_s=0.0, wait_s=0.05, denied_wait_s=0.05)
    with serving(Collector()) as collector:
        collector.answers = lambda events: all_taken(events) if not script or (code := script.pop()) == 202 else Answer(code)
        with Client(collector.url, "tab", spool=tmp_path_factory.mktemp("spool"), limits=limits) as client:
            ids = [client.shown("ep-1.1-0") for burst in told for _ in range(burst)]
            assert client.flush(60)
            stats = client.stats
    assert stats.told == len(ids) == stats.taken + sum(stats.dropped.values()) and accounted(client)
    assert Counter(collector.ids).keys() <= set(ids) and len(collector.ids) == stats.taken == len(set(collector.ids))


def test_the_async_client_never_holds_up_the_event_loop(collector, tmp_path):
    async def host() -> tuple[int, bool]:
        collector.answers = lambda events: Answer(202, all_taken(events).body, after_s=1.5)
        beats = 0
        async with AsyncClient(collector.url, "tab", spool=tmp_path, limits=QUICK) as client:
            client.thumbs("ep-1.1-0", up=True)
            flushing = asyncio.create_task(client.flush())
            while not flushing.done():
                await asyncio.sleep(0.01)
                beats += 1
            return beats, flushing.result() and client.stats.taken == 1

    beats, sent = asyncio.run(host())
    assert sent and beats > 10
