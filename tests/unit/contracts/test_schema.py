"""The exported schemas: they are what the code says, they are true, and what is valid under a released one is still read."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from contracts import schema, topics
from contracts.episode import Episode
from contracts.errors import Poison
from contracts.outcome import KINDS, Happening, Outcome
from contracts.policy import Policy, RewardSpec, RolloutPlan
from contracts.reward import Reward, Sample
from contracts.schema_change import breaks_of_all
from ingest.collect.decode import decode
from ingest.collect.pieces import cut
from tests.conftest import EPOCH, REPOSITORY, make_outcome, make_turn
from tests.unit.contracts.schema_values import values

NOW = schema.export()
RECORDS: dict[str, type[BaseModel]] = {
    **{schema._snake(topic.record): topic.record for topic in (*topics.ALL, topics.grave(topics.TURNS))},
    **{schema._snake(record): record for record in (Episode, Reward, Sample, Policy, RewardSpec, RolloutPlan)},
}
READERS = {
    **{name: TypeAdapter(record) for name, record in RECORDS.items()},
    **{f"kind/{kind}": TypeAdapter(Happening) for kind in KINDS},
}
RELEASED = [(version, name) for version, schemas in schema.released().items() for name in schemas if name in READERS]


def takes(name: str, value: Any) -> bool:
    return jsonschema_rs.Draft202012Validator(NOW[name], validate_formats=True).is_valid(value)


def test_the_tree_has_what_the_code_exports() -> None:
    """When this fails, look at what changed: `slipstream schema --check`, then `slipstream schema --out contracts/schemas`."""
    there = schema.read(schema.HERE)
    assert {name for name in {*NOW, *there} if NOW.get(name) != there.get(name)} == set()
    for name, found in NOW.items():
        assert (schema.HERE / f"{name}.json").read_text(encoding="utf-8") == schema.render(found)


def test_no_released_schema_is_broken() -> None:
    """When this fails, data or clients of that version can no longer be read: keep the old way beside the new one."""
    assert set(schema.released()) >= {"0.1.0"}
    assert [f"{version}: {what}" for version, then in schema.released().items() for what in breaks_of_all(then, NOW)] == []


def test_every_public_record_has_a_schema_with_a_title_and_words() -> None:
    assert {*READERS, "event"} == set(NOW)
    for name, found in NOW.items():
        jsonschema_rs.meta.validate(found)
        assert found["title"] and found["description"] and found["$id"] == f"urn:slipstream:schema:{name}", name
    assert [topic.record.__name__ for topic in topics.ALL if schema._snake(topic.record) not in NOW] == []


def test_records_as_they_travel_are_valid_and_others_are_not() -> None:
    turn = json.loads(make_turn().encode())
    assert takes("turn", turn) and not takes("turn", {**turn, "colour": "red"}) and not takes("turn", {**turn, "propensity": 0})
    for kind in ("shown", "accepted", "persisted", "closed"):
        outcome = json.loads(make_outcome(kind, "e1").encode())
        assert takes("outcome", outcome)
        assert not takes("outcome", {**outcome, "happening": {**outcome["happening"], "kind": "accepted", "characters": -1}})
    outcome = json.loads(make_outcome("shown", "e1").encode())
    assert takes("outcome", {**outcome, "happening": {"kind": "hovered", "seconds": 3}}), "an unknown kind is kept as it came"
    assert not takes("outcome", {**outcome, "happening": {"kind": "accepted"}}), "a known kind must be whole"


def test_every_shipped_policy_file_is_valid_and_so_are_the_files_it_names() -> None:
    files = sorted((REPOSITORY / "policies").rglob("*.yaml"))
    assert len(files) > 8
    for file in files:
        name = {"rewards": "reward_spec", "rollouts": "rollout_plan"}.get(file.parent.name, "policy")
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
        errors = list(jsonschema_rs.Draft202012Validator(NOW[name]).iter_errors(found))
        assert not errors, f"{file}: {errors[0]}"
        assert not takes(name, {**found, "colour": "red"})


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"data": {"characters": 4, "whole": False}}, True),
        ({"data": {"kind": "accepted", "characters": 4}}, False),
        ({"data": {"characters": -4}}, False),
        ({"data": {}}, False),
        ({"specversion": "0.3"}, False),
        ({"time": "yesterday"}, False),
        ({"type": "slipstream.closed", "data": {}}, True),
        ({"type": "slipstream.hovered", "data": {"seconds": 3}}, True),
        ({"policy": "a b"}, False),
        ({"traceparent": "00-1"}, True),
    ],
)
def test_the_envelope_of_an_event(change: dict[str, Any], valid: bool) -> None:
    event = {
        "specversion": "1.0",
        "id": "e1",
        "source": "/vscode/1.4",
        "type": "slipstream.accepted",
        "time": "2026-01-01T00:00:00Z",
        "policy": "tab",
        "turnid": "ep-1.1-0",
        "data": {"characters": 4},
    }
    told = {**event, **change}
    assert takes("event", told) is valid
    judged = decode(cut(json.dumps(told).encode(), batch=False)[0], EPOCH, ("tab",), 10_000)
    assert isinstance(judged.record, Outcome) or not valid, "what the schema lets in, the collector takes"


def structural(error: ValidationError) -> list[str]:
    """Without what rules between fields say, which a schema cannot know (pydantic calls those `value_error`), and what follows."""
    faults = error.errors()
    rules = [fault["loc"] for fault in faults if fault["type"] == "value_error"]
    return [
        f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
        for fault in faults
        if not any(place[: len(fault["loc"])] == fault["loc"] for place in rules)
    ]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("version", "name"), RELEASED, ids=lambda word: word)
@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_a_released_schema_lets_in_is_still_read(version: str, name: str, data: st.DataObject) -> None:
    then = schema.released()[version][name]
    value = data.draw(values(then))
    wrong = [str(error) for error in jsonschema_rs.Draft202012Validator(then).iter_errors(value)]
    assert wrong == [], "the drawing must be right for the test to mean anything"
    if name == "policy":
        assume(not isinstance(value["reward"], str) and not isinstance(value["rollout"], str))
    try:
        READERS[name].validate_json(json.dumps(value))
    except ValidationError as error:
        assert structural(error) == []
    except Poison as poison:
        assert poison.reason == "bad_turn_id", "how a turn's id is made is a rule too"


def test_writing_twice_gives_the_same_bytes_and_removes_what_is_no_more(tmp_path: Any) -> None:
    first = {file: file.read_bytes() for file in schema.write(tmp_path)}
    (tmp_path / "kind" / "gone.json").write_text("{}")
    assert {file: file.read_bytes() for file in schema.write(tmp_path)} == first
    assert not (tmp_path / "kind" / "gone.json").exists() and schema.read(tmp_path) == NOW
