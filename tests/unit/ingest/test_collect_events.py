"""The collector: each event has its own fate, whatever its neighbours are, and leaves a record of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from contracts.outcome import KINDS, Outcome, Refusal
from contracts.topics import REFUSALS
from infra.eventlog.embedded import EmbeddedLog
from ingest.collect.decode import Judged, decode
from ingest.collect.pieces import cut
from tests.collector import cloud_event, collecting, lines, outcomes, refusals, send

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def judged(event: Any, policies: tuple[str, ...] = ("tab",)) -> Judged:
    return decode(cut(json.dumps(event).encode(), batch=False)[0], NOW, policies, 10_000)


def judge(event: Any, policies: tuple[str, ...] = ("tab",)) -> Outcome | Refusal:
    return judged(event, policies).record


def test_a_good_event_is_taken_and_lies_in_the_log(client: TestClient, log: EmbeddedLog) -> None:
    answer = send(client, cloud_event())
    assert answer.status_code == 202 and answer.json() == {"results": [{"id": "e1", "status": "taken"}]}
    (outcome,) = outcomes(log)
    assert (outcome.event_id, outcome.policy, outcome.turn_id, outcome.episode_id) == ("e1", "tab", "ep-1.1-0", "ep-1")
    assert outcome.occurred_at == datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)
    assert outcome.happening == KINDS["accepted"](characters=4)


def test_a_batch_names_each_event_s_fate_in_the_order_sent(client: TestClient, log: EmbeddedLog) -> None:
    told = [cloud_event("shown", "a"), cloud_event("accepted", "b", policy="nope"), cloud_event("closed", "c")]
    answer = send(client, told)
    assert answer.status_code == 207
    first, second, third = answer.json()["results"]
    assert first == {"id": "a", "status": "taken"} and third == {"id": "c", "status": "taken"}
    assert second == {
        "id": "b",
        "status": "refused",
        "code": 422,
        "reason": "unknown_policy",
        "detail": "policy: expected one of tab",
    }
    assert send(client, []).json() == {"results": []}


@pytest.mark.parametrize(
    ("change", "code", "reason", "says"),
    [
        ({"time": "2026-01-01T00:00:00"}, 422, "bad_field", "time: expected an offset"),
        ({"time": 1767225600}, 422, "bad_field", "time: expected a string"),
        ({"policy": "nope"}, 422, "unknown_policy", "policy: expected one of tab"),
        ({"policy": None}, 422, "unknown_policy", "policy: expected one of tab"),
        ({"turnid": "nodot"}, 422, "bad_turn_id", "turnid: expected <episode_id>.<rest>, something before"),
        ({"turnid": "ep-1."}, 422, "bad_turn_id", "behind it, got 'ep-1.'"),
        ({"turnid": "nodot", "episodeid": "ep-1"}, 422, "bad_turn_id", "turnid: expected <episode_id>.<rest>"),
        ({"turnid": "é.0"}, 422, "bad_field", "turnid: String should match"),
        ({"turnid": "é.0", "data": {}}, 422, "bad_field", "(and 1 more)"),
        ({"turnid": None, "episodeid": "é"}, 422, "bad_field", "episodeid: String should match"),
        ({"turnid": None}, 422, "no_turn_named", "turnid: an event names its turn"),
        ({"turnid": 7}, 422, "bad_field", "turnid"),
        ({"episodeid": "ep-2"}, 422, "bad_field", "turnid 'ep-1.1-0' belongs to another episode than 'ep-2'"),
        ({"data": {}}, 422, "bad_field", "data.characters: Field required"),
        ({"data": {"characters": "4"}}, 422, "bad_field", "data.characters"),
        ({"data": {"charaters": 4}}, 422, "bad_field", "data.characters: Field required"),
        ({"data": {"characters": -4, "colour": 1}}, 422, "bad_field", "data.characters: Input should be greater"),
        ({"data": {"kind": "accepted", "characters": 4}}, 422, "bad_field", "data.kind"),
        ({"data": [4]}, 422, "bad_field", "data: expected an object"),
        ({"data": {"kind": "closed"}}, 422, "bad_field", "data.kind"),
        ({"type": "slipstream.edited", "data": {"surviving": 1.5}}, 422, "bad_field", "data.surviving"),
        ({"type": "com.github.push"}, 422, "bad_field", "type: expected slipstream.<kind>"),
        ({"type": "slipstream."}, 422, "bad_field", "type"),
        ({"data": None, "data_base64": "AAAA"}, 422, "bad_field", "data_base64"),
        ({"specversion": None}, 400, "bad_field", "specversion: required"),
        ({"specversion": "0.3"}, 400, "bad_field", "specversion"),
        ({"specversion": 1.0}, 400, "bad_field", "specversion: expected a string"),
        ({"source": ""}, 400, "bad_field", "source: expected a string that is not empty"),
        ({"source": ["x"]}, 400, "bad_field", "source: expected a string"),
        ({"type": 0}, 400, "bad_field", "type: expected a string"),
        ({"subject": 7}, 400, "bad_field", "subject: expected a string"),
        ({"type": None}, 400, "bad_field", "type: required"),
        ({"turnId": "ep-1.1-0"}, 400, "bad_field", "turnId"),
        ({"id": "two words"}, 422, "bad_field", "id"),
        ({"id": 5}, 400, "bad_field", "id: expected a string"),
        ({"id": False}, 400, "bad_field", "id: expected a string"),
        ({"note": "x" * 2000}, 413, "too_large", "an event may have 1000"),
    ],
)
def test_a_bad_event_is_refused_by_the_name_of_its_field_and_its_neighbours_are_taken(
    client: TestClient, log: EmbeddedLog, change: dict[str, Any], code: int, reason: str, says: str
) -> None:
    answer = send(client, [cloud_event(event_id="e1"), cloud_event(**{"event_id": "e2", **change}), cloud_event(event_id="e3")])
    assert answer.status_code == 207
    first, bad, third = answer.json()["results"]
    assert first["status"] == third["status"] == "taken"
    assert (bad["status"], bad["code"], bad["reason"]) == ("refused", code, reason) and says in bad["detail"]
    assert {outcome.event_id for outcome in outcomes(log)} == {"e1", "e3"}
    (refusal,) = refusals(log)
    assert refusal.reason == reason and refusal.detail == bad["detail"]


@pytest.mark.parametrize("fraction", ["", ".5", ".17", ".170", ".1234", ".123456", ".1234567", ".123456789"])
@pytest.mark.parametrize("offset", ["Z", "z", "+05:30", "-09:00", "+00:00"])
def test_any_fraction_and_any_offset_is_understood(fraction: str, offset: str) -> None:
    outcome = judge(cloud_event(time=f"2022-08-08T16:07:57{fraction}{offset}"))
    hours = {"Z": 0.0, "z": 0.0, "+00:00": 0.0, "+05:30": 5.5, "-09:00": -9.0}[offset]
    microseconds = int((fraction[1:7] or "0").ljust(6, "0"))
    expected = datetime(2022, 8, 8, 16, 7, 57, microseconds, tzinfo=UTC) - timedelta(hours=hours)
    assert isinstance(outcome, Outcome) and outcome.occurred_at == expected


def test_a_leap_second_is_the_second_before_it() -> None:
    outcome = judge(cloud_event(time="2016-12-31T23:59:60.25Z"))
    assert isinstance(outcome, Outcome) and outcome.occurred_at == datetime(2016, 12, 31, 23, 59, 59, 250_000, tzinfo=UTC)


@pytest.mark.parametrize("time", ["2026-01-15T12:00:00Z", "2199-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_clock_from_the_future_is_taken_and_counts_as_of_its_arrival(time: str) -> None:
    outcome = judge(cloud_event(time=time))
    assert isinstance(outcome, Outcome) and outcome.order == (NOW, "e1")
    assert outcome.occurred_at.isoformat() == time.replace("Z", "+00:00"), "kept as it was told"


def test_an_event_that_was_told_late_keeps_its_time() -> None:
    outcome = judge(cloud_event(time="2024-05-21T00:08:54Z"))
    assert isinstance(outcome, Outcome) and outcome.order == (datetime(2024, 5, 21, 0, 8, 54, tzinfo=UTC), "e1")


@pytest.mark.parametrize(
    "time", ["yesterday", "", "0000-00-00T00:00:00Z", "9999-12-31T23:59:59-10:00", "0001-01-01T00:00:00+10:00"]
)
def test_a_time_that_is_none_counts_as_of_its_arrival_and_the_answer_says_so(
    client: TestClient, log: EmbeddedLog, time: str
) -> None:
    answer = send(client, cloud_event(time=time))
    (fate,) = answer.json()["results"]
    assert answer.status_code == 202 and fate["status"] == "taken" and "arrival" in fate["note"]
    (outcome,) = outcomes(log)
    assert outcome.occurred_at == outcome.received_at


@pytest.mark.parametrize(
    ("ahead_s", "note"), [(3600, "time: more than a minute ahead, counts as of its arrival"), (60, None), (0, None), (-9e6, None)]
)
def test_a_time_far_ahead_is_kept_as_it_was_told_and_the_answer_says_as_of_when_it_counts(
    log: EmbeddedLog, tmp_path: Path, ahead_s: float, note: str | None
) -> None:
    told = NOW + timedelta(seconds=ahead_s)
    with collecting(log, tmp_path, clock=lambda: NOW) as client:
        answer = send(client, cloud_event(time=told.isoformat()))
    assert answer.status_code == 202
    assert answer.json()["results"] == [{"id": "e1", "status": "taken", **({"note": note} if note else {})}]
    (outcome,) = outcomes(log)
    assert (outcome.occurred_at, outcome.received_at) == (told, NOW)


def test_a_field_that_is_not_known_yet_is_left_out_and_the_answer_says_which(client: TestClient, log: EmbeddedLog) -> None:
    told = [
        cloud_event(event_id="a", data={"characters": 7, "newfield": 1, "another": "\ud800"}),
        cloud_event("closed", "b", data={"why": {"deep": [None]}}, time="yesterday"),
        cloud_event(event_id="c", data={"characters": 7, **{f"field{number}": number for number in range(100)}}),
        cloud_event(event_id="d", data={"characters": 7, "x" * 600: 1}),
    ]
    answer = send(client, [*told[:2], cloud_event(event_id="same", data={"characters": 7})])
    assert answer.status_code == 202
    first, second, third = answer.json()["results"]
    assert first == {
        "id": "a",
        "status": "taken",
        "note": "data: left out what this release does not know: newfield, another",
    }
    assert second["note"].startswith("time: none") and second["note"].endswith(
        "; data: left out what this release does not know: why"
    )
    assert third == {"id": "same", "status": "taken"}
    assert [outcome.happening for outcome in outcomes(log)] == [
        KINDS["accepted"](characters=7),
        KINDS["closed"](),
        KINDS["accepted"](characters=7),
    ]
    notes = [judged(event).note for event in told[2:]]
    assert notes[0] is not None and notes[0].endswith("field6, field7 and 92 more")
    assert notes[1] is not None and len(notes[1]) == 500


def test_the_openapi_says_what_becomes_of_a_field_that_is_not_known(client: TestClient) -> None:
    told = client.get("/openapi.json").json()["paths"]["/v1/events"]["post"]
    assert "left out" in told["requestBody"]["description"]
    fate = told["responses"]["202"]["content"]["application/json"]["schema"]["properties"]["results"]["items"]
    assert "left out" in fate["properties"]["note"]["description"]


def test_windows_are_in_utc_when_the_clocks_change() -> None:
    """New York, 8 March 2026: 01:30 and 03:30 are an hour apart."""
    moments = [judge(cloud_event(time=time)) for time in ("2026-03-08T01:30:00-05:00", "2026-03-08T03:30:00-04:00")]
    first, second = (moment.occurred_at for moment in moments if isinstance(moment, Outcome))
    assert second - first == timedelta(hours=1)


def test_an_unknown_kind_is_kept_with_all_its_data(client: TestClient, log: EmbeddedLog) -> None:
    data = {"pane": {"column": 3}, "words": ["a", None, 1.5, True]}
    assert send(client, cloud_event("glanced_at", data=data)).status_code == 202
    (outcome,) = outcomes(log)
    assert outcome.happening.kind == "glanced_at" and outcome.happening.model_extra == data


@pytest.mark.parametrize(
    "body", ['{"a": 1e999}', '{"a": "\\ud800"}', '{"\\udfff": 1}', f'{{"a": {2**70}}}', f'{{"a": {"[" * 40}{"]" * 40}}}']
)
def test_data_of_an_unknown_kind_that_could_not_be_read_again_is_refused(client: TestClient, log: EmbeddedLog, body: str) -> None:
    event = json.dumps(cloud_event("glanced_at", data={}))[:-1]
    text = f"[{json.dumps(cloud_event(event_id='e2'))}, {event[: event.rindex('{')]}{body}}}]"
    answer = send(client, text.encode())
    assert [fate["status"] for fate in answer.json()["results"]] == ["taken", "refused"]
    assert refusals(log)[0].reason == "bad_field" and len(outcomes(log)) == 1


def test_an_episode_may_be_told_without_a_turn() -> None:
    outcome = judge(cloud_event("closed", turnid=None, episodeid="ep-9"))
    assert isinstance(outcome, Outcome) and (outcome.turn_id, outcome.episode_id) == (None, "ep-9")


def test_extensions_and_nulls_of_the_specification_are_tolerated() -> None:
    event = {**cloud_event(), "traceparent": "00-abc", "subject": "x", "dataschema": None, "datacontenttype": "application/json"}
    assert isinstance(judge(event), Outcome)


@pytest.mark.parametrize(
    "change",
    [{"consent": False}, {"consent": "no"}, {"consent": 0}, {"turnid": "ep-1.1-0-withheld"}, {"consent": False, "policy": "x"}],
)
def test_without_consent_nothing_is_kept_but_a_count(client: TestClient, log: EmbeddedLog, change: dict[str, Any]) -> None:
    told = cloud_event("follow_up", "secret-id", data={"text": "my words"}, **change)
    for _ in range(2):
        (fate,) = send(client, told).json()["results"]
        assert (fate["status"], fate["reason"], fate["detail"]) == ("refused", "no_consent", "")
    kept = lines(log, REFUSALS)
    first, second = (Refusal.decode(line) for line in kept)
    assert first.refusal_id != second.refusal_id and first.event_id is None and first.policy in ("tab", None)
    assert not any(word in line for line in kept for word in (b"secret-id", b"my words", b"ep-1", b"follow_up"))
    assert outcomes(log) == []


def test_with_consent_it_is_an_event_like_any_other() -> None:
    assert isinstance(judge(cloud_event(consent=True)), Outcome)


def test_refusing_the_same_event_twice_is_one_refusal_id() -> None:
    for bad in (cloud_event(policy="nope"), cloud_event(event_id="two words"), [1]):
        first, second = judge(bad), judge(bad)
        assert isinstance(first, Refusal) and isinstance(second, Refusal) and first.refusal_id == second.refusal_id
    assert judge(cloud_event(policy="nope")).refusal_id == "e1"  # type: ignore[union-attr]


def test_a_refusal_is_counted_for_its_policy_whatever_that_is_called() -> None:
    for name in ("tab", "my-policy.v2"):
        refusal = judge(cloud_event(policy=name, data={}), policies=(name,))
        assert isinstance(refusal, Refusal) and refusal.policy == name
