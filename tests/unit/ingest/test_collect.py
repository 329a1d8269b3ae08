"""The collector: each event has its own fate, whatever its neighbours are."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.outcome import Outcome, Refusal
from contracts.topics import OUTCOMES, REFUSALS
from infra.clock import system_clock
from infra.eventlog.embedded import EmbeddedLog
from ingest.collect.app import make_app
from ingest.collect.decode import decode
from ingest.config import IngestConfig

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = {
    "event_id": "e1",
    "policy": "tab",
    "turn_id": "ep-1.1-0",
    "occurred_at": "2026-01-01T00:00:00.5Z",
    "happening": {"kind": "accepted", "characters": 4},
}


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    log = EmbeddedLog(tmp_path / "log.db")
    log.ensure([OUTCOMES, REFUSALS])
    return log


@pytest.fixture
def client(log: EmbeddedLog) -> TestClient:
    return TestClient(make_app(log, {"tab"}, IngestConfig(max_event_bytes=1000, max_batch_events=50), system_clock))


def read(log: EmbeddedLog, topic: str) -> list[bytes]:
    consumer = log.consumer("test", [topic])
    found = [message.value for message in consumer.poll(1.0)]
    consumer.close()
    return found


def test_a_good_event_is_taken_and_lies_in_the_log(client, log):
    answer = client.post("/v1/events", json=GOOD)
    assert answer.status_code == 202 and answer.json() == {"results": [{"event_id": "e1", "status": "taken"}]}
    (value,) = read(log, "outcomes")
    outcome = Outcome.decode(value)
    assert outcome.episode_id == "ep-1" and outcome.occurred_at == datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("change", "reason", "says"),
    [
        ({"occurred_at": "2026-01-01T00:00:00"}, "bad_field", "timezone"),
        ({"occurred_at": "yesterday"}, "bad_field", "occurred_at"),
        ({"policy": "nope"}, "unknown_policy", "expected one of tab"),
        ({"turn_id": "nodot"}, "no_turn_named", "<episode_id>.<n>"),
        ({"turn_id": None}, "no_turn_named", "names its turn"),
        ({"happening": {"kind": "accepted"}}, "bad_field", "characters"),
        ({"happening": {"kind": "edited", "surviving": 1.5}}, "bad_field", "surviving"),
        ({"colour": "red"}, "unknown_field", "colour"),
        ({"note": "x" * 2000}, "too_large", "1000"),
        ({"event_id": "two words"}, "bad_field", "event_id"),
    ],
)
def test_a_bad_event_is_refused_with_its_reason_and_its_neighbours_are_unharmed(client, log, change, reason, says):
    answer = client.post("/v1/events", json={"events": [GOOD, {**GOOD, "event_id": "e2", **change}, {**GOOD, "event_id": "e3"}]})
    assert answer.status_code == 207
    first, bad, third = answer.json()["results"]
    assert first["status"] == third["status"] == "taken"
    assert bad["status"] == "refused" and bad["reason"] == reason and says in bad["detail"]
    assert len(read(log, "outcomes")) == 2
    (refusal,) = read(log, "refusals")
    assert Refusal.decode(refusal).reason == reason


@pytest.mark.parametrize("fraction", ["", ".5", ".17", ".170", ".123456"])
def test_any_fraction_of_a_second_is_understood(fraction):
    event = {**GOOD, "occurred_at": f"2022-08-08T16:07:57{fraction}Z"}
    assert isinstance(decode(event, NOW, {"tab"}, 10_000), Outcome)


def test_another_offset_is_the_same_moment():
    outcome = decode({**GOOD, "occurred_at": "2026-01-01T05:30:00+05:30"}, NOW, {"tab"}, 10_000)
    assert isinstance(outcome, Outcome) and outcome.occurred_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_body_that_is_no_json_gets_400(client):
    assert client.post("/v1/events", content=b"{").status_code == 400
    assert client.post("/v1/events", content=b"[" * 100_000).status_code in (400, 413)


def test_too_many_events_get_413(client):
    assert client.post("/v1/events", json=[GOOD] * 51).status_code == 413


def test_refusing_the_same_event_twice_is_one_refusal_id():
    bad = {**GOOD, "policy": "nope"}
    first, second = (decode(bad, NOW, {"tab"}, 10_000) for _ in range(2))
    assert isinstance(first, Refusal) and isinstance(second, Refusal) and first.refusal_id == second.refusal_id == "e1"


def test_a_refusal_is_counted_for_its_policy_whatever_that_is_called():
    for name in ("tab", "my-policy.v2"):
        refusal = decode({**GOOD, "policy": name, "occurred_at": "yesterday"}, NOW, {name}, 10_000)
        assert isinstance(refusal, Refusal) and refusal.policy == name


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(event=JSON | st.fixed_dictionaries({key: JSON for key in GOOD}), key=st.sampled_from(sorted(GOOD)), value=JSON)
def test_no_event_is_beyond_an_answer(event, key, value):
    for one in (event, {**GOOD, key: value}):
        fate = decode(one, NOW, {"tab"}, 10_000)
        assert isinstance(fate, Outcome | Refusal)
        assert type(fate).decode(fate.encode()) == fate


def test_surrogates_and_nul_do_not_break_the_answer(client):
    body = json.dumps([{**GOOD, "event_id": "\ud800"}, {**GOOD, "event_id": "a\x00b"}, {**GOOD, "policy": "\udfff"}, GOOD])
    answer = client.post("/v1/events", content=body)
    assert answer.status_code == 207 and answer.json()["results"][-1]["status"] == "taken"
