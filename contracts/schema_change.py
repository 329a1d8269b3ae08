"""Which changes of a schema break those who wrote by the old one.

Enters: an old and a new schema. Leaves: one sentence for each change after which something that the old one took is refused, read
as something else, or silently lost: a field that is gone or renamed, a field that must be there, a narrower type, enum, range or
pattern, another default, a kind that is gone, extra fields that are no longer let in. What is not understood counts as a break,
which is safe. Widening is harmless, and so are words (titles, descriptions).

Libraries were tried: jsoncompat says yes or no without a reason and takes a narrower pattern for harmless; ghga-jsonsubschema gives
up at our unions; jsonschema-rs proves that a schema covers another, gives no reason, and cannot prove that a new kind is harmless.
The last one is the judge in this module's tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

Schema = Mapping[str, Any]

DEFAULTS_MAY_CHANGE = frozenset({"policy", "rollout_plan"})
"""Files that people write and can look at again; in everything else an absent field goes on meaning what it meant."""

_WORDS = {"title", "description", "$id", "$schema", "$defs", "$comment", "examples", "deprecated", "discriminator"}
_CHOICES = ("anyOf", "oneOf")
_LENGTHS = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"))
_EXACT = ("pattern", "format", "multipleOf", "uniqueItems")
_HANDLED = {
    *_WORDS, *_CHOICES, *_EXACT, *(bound for pair in _LENGTHS for bound in pair),
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "type", "const", "enum", "default", "not", "$ref"),
    *("properties", "required", "additionalProperties", "items", "prefixItems", "contentEncoding"),
}  # fmt: skip
_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})


@dataclass(frozen=True)
class _Pair:
    """Two places that correspond. `taken`: names that alternatives of the new schema have for themselves."""

    old_root: Schema
    new_root: Schema
    defaults_may_change: bool
    where: str = ""
    taken: frozenset[str] = frozenset()
    seen: frozenset[tuple[str, str]] = frozenset()

    def at(self, step: str) -> _Pair:
        return replace(self, where=f"{self.where}.{step}" if self.where else step)

    def says(self, what: str) -> str:
        return f"{self.where or 'the whole'}: {what}"


def breaks(old: Schema, new: Schema, name: str = "") -> list[str]:
    """What is wrong with this change; empty where nothing is."""
    return list(_compare(old, new, _Pair(old, new, name in DEFAULTS_MAY_CHANGE)))


def breaks_of_all(old: Mapping[str, Schema], new: Mapping[str, Schema]) -> list[str]:
    """The same for a whole set: a schema that is gone is a break, a new one is none."""
    found = []
    for name, schema in sorted(old.items()):
        if name not in new:
            found.append(f"{name}: it was released, and is gone")
        else:
            found += [f"{name}: {what}" for what in breaks(schema, new[name], name)]
    return found


def _compare(old: Any, new: Any, pair: _Pair) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping) and "$ref" in old and "$ref" in new:
        refs = (str(old["$ref"]), str(new["$ref"]))
        if refs in pair.seen:
            return
        pair = replace(pair, seen=pair.seen | {refs})
    old, new = _resolved(old, pair.old_root), _resolved(new, pair.new_root)
    yield from _default(old, new, pair)
    if not _says_anything(new):
        return
    (core, choices), (new_core, new_choices) = _split(old, pair.old_root), _split(new, pair.new_root)
    if not new_choices:
        # What is let in by any of the old alternatives must be let in by the only new one.
        for one in choices or [{}]:
            yield from _one({**core, **one}, new_core, pair)
        return
    inside = replace(pair, taken=frozenset(name for one in new_choices for name in _names(one)))
    if choices or _says_anything(new_core):
        yield from _one(core, new_core, inside)
    for one in choices or [core]:
        yield from _best(one, new_choices, inside)


def _best(one: Schema, choices: list[Schema], pair: _Pair) -> Iterator[str]:
    """One of the choices must take it: that of its name, where it has a name, else any."""
    names = _names(one)
    rivals = [choice for choice in choices if names <= _names(choice)]
    if names and not rivals:
        yield pair.says(f"{', '.join(sorted(names))} is gone")
        return
    found = [list(_one(one, choice, pair)) for choice in rivals]
    if all(found):
        like = [wrong for wrong, choice in zip(found, rivals, strict=True) if _types(one) & _types(choice)]
        yield from min(like or found, key=len)


def _one(old: Schema, new: Schema, pair: _Pair) -> Iterator[str]:
    gone = {kind for kind in _types(old) if kind not in _types(new) and not (kind == "integer" and "number" in _types(new))}
    if gone:
        yield pair.says(f"{', '.join(sorted(gone))} is no longer let in")
        return
    yield from _values(old, new, pair)
    yield from _not(old, new, pair)
    yield from _bounds(old, new, pair)
    for keyword in _EXACT:
        if new.get(keyword) and new[keyword] != old.get(keyword):
            yield pair.says(f"{keyword} is {new[keyword]!r}, was {old.get(keyword)!r}")
    if old.get("contentEncoding") != new.get("contentEncoding"):
        yield pair.says("its encoding is another")
    if "array" in _types(old):
        yield from _array(old, new, pair)
    if "object" in _types(old):
        yield from _object(old, new, pair)
    for keyword in sorted((set(old) | set(new)) - _HANDLED):
        if old.get(keyword) != new.get(keyword):
            yield pair.says(f"{keyword} changed, and nobody here knows what that means")


def _values(old: Schema, new: Schema, pair: _Pair) -> Iterator[str]:
    before, after = _listed(old), _listed(new)
    if after is None:
        return
    if before is None:
        yield pair.says(f"only {after} are let in now")
    elif lost := [value for value in before if value not in after]:
        yield pair.says(f"{lost} are no longer let in")


def _not(old: Schema, new: Schema, pair: _Pair) -> Iterator[str]:
    """Names may be kept from an open alternative when another one has come to have them."""
    before, after = old.get("not"), new.get("not")
    if after is None or after == before:
        return
    if not isinstance(after, Mapping) or set(after) != {"enum"} or (before is not None and set(before) != {"enum"}):
        yield pair.says("what must not be changed")
        return
    kept_out = [value for value in after["enum"] if value not in (before or {}).get("enum", ()) and value not in pair.taken]
    listed = _listed(old)
    if listed is not None:
        kept_out = [value for value in kept_out if value in listed]
    if kept_out:
        yield pair.says(f"{kept_out} must not be any more")


def _bounds(old: Schema, new: Schema, pair: _Pair) -> Iterator[str]:
    for low, high in _LENGTHS:
        if new.get(low, 0) > old.get(low, 0):
            yield pair.says(f"{low} is {new[low]}, was {old.get(low, 0)}")
        if high in new and (high not in old or new[high] < old[high]):
            yield pair.says(f"{high} is {new[high]}, was {old.get(high)}")
    for word, limit, exclusive, sign in (
        ("least", "minimum", "exclusiveMinimum", 1),
        ("most", "maximum", "exclusiveMaximum", -1),
    ):
        before, after = _edge(old, limit, exclusive, sign), _edge(new, limit, exclusive, sign)
        if after is not None and (before is None or before < after):
            yield pair.says(f"it may be at {word} {after[0] * sign}, not {'any' if before is None else before[0] * sign}")


def _edge(schema: Schema, limit: str, exclusive: str, sign: int) -> tuple[float, bool] | None:
    """The tighter of the two, larger where it lets in less."""
    edges = [(schema[key] * sign, key == exclusive) for key in (limit, exclusive) if key in schema]
    return max(edges, default=None)


def _array(old: Schema, new: Schema, pair: _Pair) -> Iterator[str]:
    first, new_first = old.get("prefixItems", ()), new.get("prefixItems", ())
    if len(first) != len(new_first):
        yield pair.says(f"{len(new_first)} items have a place of their own, {len(first)} had")
        return
    for number, (item, new_item) in enumerate(zip(first, new_first, strict=True)):
        yield from _compare(item, new_item, pair.at(f"[{number}]"))
    yield from _compare(old.get("items", True), new.get("items", True), pair.at("[]"))


def _object(old: Schema, new: Schema, pair: _Pair) -> Iterator[str]:
    before, after = old.get("properties", {}), new.get("properties", {})
    required = set(old.get("required", ()))
    others, new_others = old.get("additionalProperties", True), new.get("additionalProperties", True)
    for name in sorted(before):
        if name in after:
            yield from _compare(before[name], after[name], pair.at(name))
        elif new_others is not True or _says_anything(_resolved(before[name], pair.old_root)):
            yield pair.at(name).says("it is gone")
    for name in sorted(set(after) - set(before)):
        if others is not False and _says_anything(_resolved(after[name], pair.new_root)):
            yield pair.at(name).says("it is new, where anything could have stood under this name")
    for name in sorted(set(new.get("required", ())) - required):
        yield pair.at(name).says("it must be there now")
    if others is not False:
        yield from _compare(others, new_others, pair.at("*"))


def _default(old: Schema, new: Schema, pair: _Pair) -> Iterator[str]:
    if pair.defaults_may_change or "default" not in old:
        return
    before, after = old["default"], new.get("default")
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        after = {name: value for name, value in after.items() if name in before}
    if "default" not in new or before != after or isinstance(before, bool) != isinstance(after, bool):
        yield pair.says(f"left out it means {after!r}, and meant {before!r}")


def _split(schema: Schema, root: Schema) -> tuple[Schema, list[Schema]]:
    """What always holds, and the alternatives of which one must hold besides; alternatives of alternatives are alternatives."""
    key = next((key for key in _CHOICES if key in schema), None)
    if key is None:
        return schema, []
    core = {name: value for name, value in schema.items() if name != key}
    choices: list[Schema] = []
    for choice in schema[key]:
        inner, more = _split(_resolved(choice, root), root)
        choices.extend({**inner, **one} for one in more or [{}])
    return core, choices


def _resolved(schema: Any, root: Schema) -> Schema:
    """What a reference refers to, with what stands beside the reference; true and false as schemas of their own."""
    if schema is True or schema is False:
        return {} if schema else {"enum": []}
    found: Schema = schema
    while "$ref" in found:
        target: Any = root
        for step in str(found["$ref"]).removeprefix("#/").split("/"):
            target = target[step]
        found = {**target, **{key: value for key, value in found.items() if key != "$ref"}}
    return found


def _says_anything(schema: Schema) -> bool:
    """Whether it keeps anything out."""
    return bool(set(schema) - _WORDS - {"default"})


def _names(schema: Schema) -> frozenset[str]:
    """What an alternative is known by: the fields that can only have one value."""
    consts = (one.get("const") for one in schema.get("properties", {}).values() if isinstance(one, Mapping))
    return frozenset(const for const in consts if isinstance(const, str))


def _types(schema: Schema) -> frozenset[str]:
    kind = schema.get("type")
    if kind is not None:
        return frozenset([kind] if isinstance(kind, str) else kind)
    listed = _listed(schema)
    return _TYPES if listed is None else frozenset(_type_of(value) for value in listed)


def _type_of(value: Any) -> str:
    kinds = {bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _listed(schema: Schema) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")
