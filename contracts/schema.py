"""JSON Schemas (2020-12) of everything that others may read or write: records, events, files.

Enters: nothing. Leaves: schemas by name, always the same. `contracts/schemas/` holds them as files, one each, and
`contracts/schemas/released/<version>/` those that were released, which `contracts.schema_change` protects. A schema says what a
reader takes: fields with a default may be absent; units stand in the description or, as `_ms`, `_s`, `_seconds`, `_days`, in the
name. Rules between fields (a turn's id begins with its episode's) are the record's and not in its schema.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts import topics
from contracts.episode import Episode
from contracts.outcome import KINDS, Outcome, Unrecognised
from contracts.policy import Policy, RewardSpec, RolloutPlan
from contracts.record import Record
from contracts.reward import Reward, Sample

Schema = dict[str, Any]

HERE = Path(__file__).resolve().parent / "schemas"
RELEASED = HERE / "released"
KIND = "kind"
EVENT = "event"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def export() -> dict[str, Schema]:
    """Every schema under its name: a record's in snake case, `kind/<kind>` for what may happen, `event` for the wire format."""
    travelling = [topic.record for topic in (*topics.ALL, topics.grave(topics.TURNS))]
    records: list[type[Record]] = [*travelling, Episode, Reward, Sample]
    found = {_snake(record): _of(record) for record in records}
    found |= {f"{KIND}/{kind}": _of(record) for kind, record in KINDS.items()}
    found |= {_snake(record): _of(record) for record in (RewardSpec, RolloutPlan)}
    found |= {"policy": _policy(), EVENT: _event(found)}
    return {name: {"$schema": _DRAFT, "$id": f"urn:slipstream:schema:{name}", **found[name]} for name in sorted(found)}


def render(schema: Schema) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n"


def write(folder: Path) -> list[Path]:
    """One file for each; files of schemas that are no more are removed, released ones stay."""
    wanted = {folder / f"{name}.json": render(schema) for name, schema in export().items()}
    for file, text in wanted.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for place in (folder, folder / KIND):
        for file in place.glob("*.json"):
            if file not in wanted:
                file.unlink()
    return list(wanted)


def read(folder: Path) -> dict[str, Schema]:
    """What a folder holds, without what was released before."""
    files = [*folder.glob("*.json"), *(folder / KIND).glob("*.json")]
    return {
        file.relative_to(folder).with_suffix("").as_posix(): json.loads(file.read_text(encoding="utf-8")) for file in sorted(files)
    }


def released() -> dict[str, Mapping[str, Schema]]:
    """The schemas of each released version."""
    return {place.name: read(place) for place in sorted(RELEASED.iterdir()) if place.is_dir()} if RELEASED.is_dir() else {}


def _of(record: type[Record]) -> Schema:
    """What may happen is exactly one kind: each says its own name, and the open one is for names that none of the others has."""
    schema = record.model_json_schema()
    for found in (schema, *schema.get("$defs", {}).values()):
        kind = found.get("properties", {}).get("kind", {})
        if kind.get("const") in KINDS:
            found["required"] = ["kind", *found.get("required", ())]
        elif found.get("title") == Unrecognised.__name__:
            kind["not"] = {"enum": sorted(KINDS)}
    return schema


def _policy() -> Schema:
    """As a file: the reward spec and the rollout plan may be files of their own."""
    schema = _of(Policy)
    schema["description"] = "A policy file. `reward` and `rollout` are the contents of their files, or paths relative to this one."
    for field in ("reward", "rollout"):
        path = {"type": "string", "description": "path of a YAML file, relative to this one"}
        schema["properties"][field] = {"anyOf": [path, schema["properties"][field]]}
    return schema


def _event(found: Mapping[str, Schema]) -> Schema:
    """CloudEvents 1.0 in JSON, structured mode; a batch is a list of these."""
    name = Outcome.model_json_schema()["properties"]["policy"]
    identity = {"type": "string", **{key: name[key] for key in ("minLength", "maxLength", "pattern")}}
    attributes: Schema = {
        "specversion": {"const": "1.0", "type": "string"},
        "id": {**identity, "description": "unique in the deployment, whatever the source; an id counts once"},
        "source": {"type": "string", "minLength": 1, "description": "the program that tells, as a URI reference"},
        "type": {"type": "string", "minLength": 1, "description": "`slipstream.` and the kind of what happened"},
        "time": {"type": "string", "format": "date-time", "description": "when it happened: RFC 3339 with an offset"},
        "datacontenttype": {"type": "string", "description": "application/json"},
        "policy": {**identity, "description": "the policy whose answer it is about"},
        "turnid": {**identity, "description": "<episode id>.<n>, as the gateway gave it"},
        "episodeid": {**identity, "description": "may be absent where `turnid` is there"},
        "consent": {"type": "boolean", "description": "false: this person does not agree to anything being kept"},
        "data": {"type": "object", "description": "the fields of the kind, without `kind`"},
    }
    known = [_told(kind, found[f"{KIND}/{kind}"]) for kind in KINDS]
    others = {"properties": {"type": {"not": {"enum": [f"slipstream.{kind}" for kind in KINDS]}}}, "title": "another kind"}
    return {
        "title": "Event",
        "description": "What a client tells the collector: CloudEvents 1.0, structured mode, JSON. Other attributes are let be.",
        "type": "object",
        "properties": attributes,
        "required": ["specversion", "id", "source", "type", "policy"],
        "additionalProperties": True,
        "oneOf": [*known, others],
    }


def _told(kind: str, schema: Schema) -> Schema:
    data = copy.deepcopy(schema)
    del data["properties"]["kind"]
    data["required"].remove("kind")
    needed = ["data"] if data["required"] else []
    return {"title": kind, "properties": {"type": {"const": f"slipstream.{kind}"}, "data": data}, "required": ["type", *needed]}


def _snake(record: type[Record]) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in record.__name__).lstrip("_")
