"""Values that a JSON Schema lets in, drawn for Hypothesis: for the part of the language that our schemas use."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC
from typing import Any

from hypothesis import strategies as st

Values = st.SearchStrategy[Any]
_ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("xyz", min_size=1, max_size=3), inner, max_size=2),
    max_leaves=4,
)


def values(schema: Any, root: Mapping[str, Any] | None = None) -> Values:
    root = schema if root is None else root
    if schema is True or schema == {}:
        return _ANY
    schema = _resolved(schema, root)
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        core = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
        return st.one_of([values(_both(core, _resolved(choice, root)), root) for choice in choices])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema.get("type", ["null", "boolean", "integer", "string"])
    return st.one_of([_typed(kind, schema, root) for kind in ([kinds] if isinstance(kinds, str) else kinds)])


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Any = root
    for step in schema["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return {**found, **{key: value for key, value in schema.items() if key != "$ref"}}


def _both(core: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any]:
    """Where the same field stands in both, that of the choice says more."""
    both = {**core, **choice}
    if "properties" in core and "properties" in choice:
        fields = {**core["properties"]}
        for name, field in choice["properties"].items():
            fields[name] = {**fields.get(name, {}), **field}
        both["properties"] = fields
    both["required"] = sorted({*core.get("required", ()), *choice.get("required", ())})
    return both


def _typed(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Values:
    if kind == "string":
        return _string(schema)
    if kind in ("integer", "number"):
        return _number(kind, schema)
    if kind == "array":
        if "prefixItems" in schema:
            return st.tuples(*(values(item, root) for item in schema["prefixItems"])).map(list)
        most = min(schema.get("maxItems", 3), schema.get("minItems", 0) + 3)
        return st.lists(values(schema.get("items", True), root), min_size=schema.get("minItems", 0), max_size=most)
    if kind == "object":
        return _object(schema, root)
    return st.none() if kind == "null" else st.booleans()


def _string(schema: Mapping[str, Any]) -> Values:
    if schema.get("format") == "date-time":
        return st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.isoformat())
    if schema.get("contentEncoding") == "base64":
        return st.lists(st.binary(min_size=4, max_size=4), max_size=3).map(lambda words: base64.b64encode(b"".join(words)).decode())
    low, high, pattern = schema.get("minLength", 0), schema.get("maxLength", 200), schema.get("pattern")
    if pattern is None:
        return st.text(min_size=low, max_size=min(high, low + 40))
    kept_out = schema.get("not", {}).get("enum", ())
    made = st.from_regex(pattern.replace("$", r"\Z"), alphabet=st.characters(max_codepoint=126))
    return made.filter(lambda text: low <= len(text) <= high and text not in kept_out)


def _number(kind: str, schema: Mapping[str, Any]) -> Values:
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum", schema.get("exclusiveMaximum"))
    if kind == "integer":
        first = None if low is None else math.ceil(low) + ("exclusiveMinimum" in schema)
        return st.integers(first, None if high is None else math.floor(high))
    return st.floats(
        low,
        high,
        allow_nan=False,
        allow_infinity=False,
        exclude_min="exclusiveMinimum" in schema,
        exclude_max="exclusiveMaximum" in schema,
    )


def _object(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Values:
    required = set(schema.get("required", ()))
    fields = {name: values(field, root) for name, field in schema.get("properties", {}).items()}
    named = st.fixed_dictionaries(
        {name: field for name, field in fields.items() if name in required},
        optional={name: field for name, field in fields.items() if name not in required},
    )
    others = schema.get("additionalProperties", True)
    if others is False:
        return named
    more = st.dictionaries(st.text("xyz", min_size=2, max_size=4), values(others, root), max_size=2)
    return st.tuples(more, named).map(lambda both: {**both[0], **both[1]})
