"""The checker of changes: what breaks is named, what is harmless passes, and what passes lets in all that was let in."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts import schema
from contracts.schema_change import breaks, breaks_of_all
from tests.unit.contracts.schema_values import values

Schema = dict[str, Any]
Change = Callable[[Schema], object]

OUTCOME, TURN, POLICY, SPEC, EVENT = (schema.export()[name] for name in ("outcome", "turn", "policy", "reward_spec", "event"))


def changed(old: Schema, change: Change) -> Schema:
    new = copy.deepcopy(old)
    change(new)
    return new


def field(name: str, **says: Any) -> Change:
    return lambda new: new["properties"][name].update(says)


def inside(definition: str, name: str, **says: Any) -> Change:
    return lambda new: new["$defs"][definition]["properties"][name].update(says)


def rename(new: Schema) -> None:
    new["properties"]["turn"] = new["properties"].pop("turn_id")


def new_required(new: Schema) -> None:
    new["properties"]["colour"] = {"type": "string"}
    new["required"].append("colour")


def without_kind(new: Schema) -> None:
    choices = new["properties"]["happening"]["oneOf"]
    choices.remove({"$ref": "#/$defs/Reverted"})
    new["$defs"]["Unrecognised"]["properties"]["kind"]["not"]["enum"].remove("reverted")


def with_kind(new: Schema) -> None:
    new["$defs"]["Hovered"] = {"type": "object", "properties": {"kind": {"const": "hovered"}}, "required": ["kind"]}
    new["properties"]["happening"]["oneOf"].append({"$ref": "#/$defs/Hovered"})
    new["$defs"]["Unrecognised"]["properties"]["kind"]["not"]["enum"].append("hovered")


def keep_out(new: Schema) -> None:
    new["$defs"]["Unrecognised"]["properties"]["kind"]["not"]["enum"].append("hovered")


def no_null(new: Schema) -> None:
    new["properties"]["turn_id"]["anyOf"].pop()


BREAKING: dict[str, tuple[Schema, Change, str]] = {
    "a field is gone": (OUTCOME, lambda new: new["properties"].pop("turn_id"), "turn_id: it is gone"),
    "a field has another name": (OUTCOME, rename, "turn_id: it is gone"),
    "a new field must be there": (OUTCOME, new_required, "colour: it must be there now"),
    "an old field must be there": (OUTCOME, lambda new: new["required"].append("turn_id"), "turn_id: it must be there now"),
    "another type": (TURN, field("consent", type="string"), "consent: boolean is no longer let in"),
    "only whole numbers": (TURN, inside("Sampling", "temperature", type="integer"), "number is no longer let in"),
    "null no more": (OUTCOME, no_null, "turn_id: null is no longer let in"),
    "a value of an enum is gone": (
        TURN,
        lambda new: new["properties"]["arm"]["enum"].remove("pinned"),
        "arm: ['pinned'] are no longer",
    ),
    "only some values": (TURN, field("role", enum=["main"]), "role: only ['main'] are let in now"),
    "one value becomes another": (OUTCOME, inside("Shown", "kind", const="seen"), "shown is gone"),
    "a smaller range": (OUTCOME, inside("Accepted", "characters", maximum=5), "characters: it may be at most 5, not 10000000"),
    "a bound where none was": (
        TURN,
        lambda new: new["$defs"]["Sampling"]["properties"]["top_k"].update(maximum=9),
        "at most 9, not any",
    ),
    "a bound that is no longer part of it": (
        TURN,
        inside("Sampling", "temperature", exclusiveMinimum=0.0),
        "it may be at least 0.0",
    ),
    "shorter text": (OUTCOME, field("policy", maxLength=5), "policy: maxLength is 5, was 128"),
    "longer text": (OUTCOME, field("policy", minLength=2), "policy: minLength is 2, was 1"),
    "another pattern": (OUTCOME, field("policy", pattern="^[a-z]+$"), "policy: pattern is '^[a-z]+$'"),
    "a format": (OUTCOME, field("policy", format="uuid"), "policy: format is 'uuid', was None"),
    "another packing": (
        TURN,
        lambda new: new["properties"]["logps"]["anyOf"][0].pop("contentEncoding"),
        "logps: its encoding is another",
    ),
    "a kind is gone": (OUTCOME, without_kind, "happening: reverted is gone"),
    "a name that an open kind had": (OUTCOME, keep_out, "kind: ['hovered'] must not be any more"),
    "other fields are kept out": (EVENT, lambda new: new.update(additionalProperties=False), "*: "),
    "options become closed": (
        SPEC,
        lambda new: new["$defs"]["RewardPart"]["properties"]["options"].update(additionalProperties=False),
        "options.*: ",
    ),
    "a field where anything could stand": (
        OUTCOME,
        lambda new: new["$defs"]["Unrecognised"]["properties"].update(seconds={"type": "number"}),
        "seconds: it is new, where anything could have stood",
    ),
    "another default": (OUTCOME, inside("Accepted", "whole", default=False), "whole: left out it means False, and meant True"),
    "a default is gone": (TURN, lambda new: new["properties"]["role"].pop("default"), "role: left out it means None"),
    "another default inside": (
        SPEC,
        lambda new: new["properties"]["prices"]["default"].update(empty=0.0),
        "prices: left out it means",
    ),
    "fewer items": (TURN, field("spans", maxItems=1), "spans: maxItems is 1, was None"),
    "another item": (TURN, lambda new: new["properties"]["secrets"]["items"].update(maxLength=3), "secrets.[]: maxLength is 3"),
    "a tuple of three": (
        SPEC,
        lambda new: new["properties"]["clamp"]["prefixItems"].append({"type": "number"}),
        "clamp: 3 items have a place",
    ),
    "a rule that is not understood": (
        TURN,
        lambda new: new.update(dependentRequired={"step": ["experiment"]}),
        "dependentRequired",
    ),
    "a kind of event is gone": (EVENT, lambda new: new["oneOf"].pop(0), "shown"),
    "a path for the reward is no longer let in": (
        POLICY,
        lambda new: new["properties"]["reward"]["anyOf"].pop(0),
        "reward: string is",
    ),
}

HARMLESS: dict[str, tuple[Schema, Change]] = {
    "nothing": (TURN, lambda new: None),
    "words": (OUTCOME, lambda new: new.update(description="else", title="Else")),
    "a new field that may be left out": (OUTCOME, lambda new: new["properties"].update(colour={"type": "string", "default": ""})),
    "a field may be left out": (TURN, lambda new: new["required"].remove("consent")),
    "null as well": (TURN, lambda new: new["properties"].update(consent={"anyOf": [{"type": "boolean"}, {"type": "null"}]})),
    "any number": (TURN, lambda new: new["$defs"]["VersionSpan"]["properties"]["start"].update(type="number")),
    "a larger range": (OUTCOME, inside("Accepted", "characters", maximum=10**9)),
    "no bound": (OUTCOME, lambda new: new["$defs"]["Accepted"]["properties"]["characters"].pop("maximum")),
    "a bound becomes part of it": (
        TURN,
        lambda new: new["$defs"]["Sampling"]["properties"]["top_p"].update(
            minimum=new["$defs"]["Sampling"]["properties"]["top_p"].pop("exclusiveMinimum")
        ),
    ),
    "longer text": (OUTCOME, field("policy", maxLength=500)),
    "no pattern": (OUTCOME, lambda new: new["properties"]["policy"].pop("pattern")),
    "one more value": (TURN, lambda new: new["properties"]["arm"]["enum"].append("shadow")),
    "a new kind": (OUTCOME, with_kind),
    "other fields are let in": (OUTCOME, lambda new: new.update(additionalProperties=True)),
    "a definition by another name": (
        OUTCOME,
        lambda new: (
            new["$defs"].update(Seen=new["$defs"].pop("Shown")),
            new["properties"]["happening"]["oneOf"].__setitem__(0, {"$ref": "#/$defs/Seen"}),
        ),
    ),
    "the alternatives in another order": (OUTCOME, lambda new: new["properties"]["happening"]["oneOf"].reverse()),
    "a new price in a default": (SPEC, lambda new: new["properties"]["prices"]["default"].update(refusal=None)),
    "another default in a policy file": (
        POLICY,
        lambda new: new["$defs"]["Learner"]["properties"]["learning_rate"].update(default=1e-6),
    ),
}


@pytest.mark.parametrize("name", BREAKING)
def test_what_breaks_is_named(name: str) -> None:
    old, change, says = BREAKING[name]
    found = breaks(old, changed(old, change), old["$id"].rpartition(":")[2])
    assert any(says in what for what in found), found


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_passes(name: str) -> None:
    old, change = HARMLESS[name]
    new = changed(old, change)
    assert breaks(old, new, old["$id"].rpartition(":")[2]) == []
    jsonschema_rs.meta.validate(new)


def test_a_default_is_kept_in_what_travels_and_may_change_in_what_people_write() -> None:
    new = changed(POLICY, lambda new: new["properties"]["quiet_seconds"].update(default=1.0))
    assert breaks(POLICY, new, "policy") == [] and breaks(POLICY, new, "turn") != []


def test_a_schema_that_is_gone_is_a_break_and_a_new_one_is_none() -> None:
    assert breaks_of_all({"turn": TURN, "old": TURN}, {"turn": TURN, "new": TURN}) == ["old: it was released, and is gone"]


def test_what_refers_to_itself_comes_to_an_end() -> None:
    tree = {"$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}}, "$ref": "#/$defs/Node"}
    assert breaks(tree, tree) == []
    narrower = changed(tree, lambda new: new["$defs"]["Node"]["properties"].update(next={"type": "null"}))
    assert breaks(tree, narrower) == ["next: object is no longer let in"]


def names() -> st.SearchStrategy[str]:
    return st.sampled_from("abc")


def bounds(low: str, high: str) -> st.SearchStrategy[Schema]:
    return st.tuples(st.none() | st.integers(-3, 3), st.none() | st.integers(4, 9)).map(
        lambda pair: {key: value for key, value in zip((low, high), pair, strict=True) if value is not None}
    )


def objects(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.tuples(st.dictionaries(names(), inner, min_size=1, max_size=3), st.sets(names()), st.booleans()).map(
        lambda parts: {
            "type": "object",
            "properties": parts[0],
            "required": sorted(parts[1] & set(parts[0])),
            "additionalProperties": parts[2],
        }
    )


def schemas() -> st.SearchStrategy[Schema]:
    leaves = st.one_of(
        st.sampled_from(
            [{"type": "null"}, {"type": "boolean"}, {"const": "x", "type": "string"}, {"enum": ["x", "y"], "type": "string"}]
        ),
        st.tuples(st.sampled_from(["integer", "number"]), bounds("minimum", "maximum")).map(lambda two: {"type": two[0], **two[1]}),
        st.tuples(st.integers(0, 3), st.integers(3, 6)).map(
            lambda two: {"type": "string", "minLength": two[0], "maxLength": two[1]}
        ),
    )

    def grow(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
        listed = st.tuples(inner, bounds("minItems", "maxItems")).map(
            lambda two: {"type": "array", "items": two[0], **{key: max(0, value) for key, value in two[1].items()}}
        )
        return objects(inner) | listed | st.lists(inner, min_size=2, max_size=3).map(lambda choices: {"anyOf": choices})

    return st.recursive(leaves, grow, max_leaves=6)


def places(found: Any) -> list[Schema]:
    """Every schema in a schema, itself first."""
    if not isinstance(found, dict):
        return []
    inner = [*found.get("properties", {}).values(), *found.get("anyOf", ()), found.get("items")]
    return [found, *(place for one in inner for place in places(one))]


def turned(new: Schema, word: str, number: int) -> None:
    """One change, for better or worse; some change nothing where they are made."""
    kind = new.get("type")
    match word:
        case "bound":
            new[{"string": "maxLength", "array": "maxItems"}.get(str(kind), "maximum")] = number
        case "unbound":
            for key in ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"):
                new.pop(key, None)
        case "null":
            inner = dict(new)
            new.clear()
            new.update(anyOf=[inner, {"type": "null"}])
        case "first choice" if "anyOf" in new:
            (only := dict(new["anyOf"][0]), new.clear(), new.update(only))
        case "number" if kind in ("integer", "number"):
            new["type"] = "number" if kind == "integer" else "integer"
        case "values" if "enum" in new:
            new["enum"] = ["x"] if number > 3 else [*new["enum"], "z"]
        case "open" if kind == "object":
            new["additionalProperties"] = not new["additionalProperties"]
        case "field" if kind == "object":
            new["properties"]["d"] = {"type": "boolean"}
        case "need" if kind == "object":
            new["required"] = sorted(new["properties"])[: number % 3]


WORDS = ("bound", "unbound", "null", "first choice", "number", "values", "open", "field", "need")


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    old=schemas(),
    changes=st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=2),
    data=st.data(),
)
def test_a_change_that_passes_lets_in_everything_that_was_let_in(
    old: Schema, changes: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    new = copy.deepcopy(old)
    for word, number, where in changes:
        found = places(new)
        turned(found[where % len(found)], word, number)
    if breaks(old, new):
        return
    value = data.draw(values(old))
    assert jsonschema_rs.Draft202012Validator(old).is_valid(value)
    assert jsonschema_rs.Draft202012Validator(new).is_valid(value)


@settings(max_examples=100, deadline=None)
@given(old=schemas())
def test_nothing_changed_is_nothing_broken(old: Schema) -> None:
    assert breaks(old, copy.deepcopy(old)) == []
