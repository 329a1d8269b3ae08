"""What the guide for producers says, and what the TypeScript SDK declares, is what the contracts and the SDKs have."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from contracts.outcome import KINDS, Refusal
from ingest.collect.decode import decode
from ingest.collect.pieces import cut
from slipstream_events import Limits
from tests.conftest import EPOCH

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs/producers.md").read_text(encoding="utf-8")
SDK = ROOT / "ingest/sdk/typescript"
KINDS_TS = (SDK / "src/kinds.ts").read_text(encoding="utf-8")
DECLARED = dict(re.findall(r"^  (\w+): \{(.*)\};$", KINDS_TS.split("interface Kinds {")[1].split("\n}")[0], re.M))
TYPES = {"integer": "number", "number": "number", "boolean": "boolean", "string": "string", "null": "null"}


def test_the_typescript_sdk_knows_each_kind_and_no_other():
    assert set(DECLARED) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_the_fields_of_the_contract_in_typescript_and_a_method(kind):
    schema = KINDS[kind].model_json_schema()
    expected = {}
    for name, field in schema["properties"].items():
        if name != "kind":
            types = [TYPES[one["type"]] for one in field.get("anyOf", [field])]
            expected[name] = (" | ".join(types), name in schema.get("required", []))
    declared = re.findall(r"(\w+)(\??): ([^;}]+?)\s*(?:;|$)", DECLARED[kind].strip())
    found = {name: (kinds, optional == "") for name, optional, kinds in declared}
    assert found == expected
    method = re.sub(r"_(\w)", lambda letter: letter[1].upper(), kind)
    assert re.search(rf'^  {method}\(target: Target.*\n    return this\.tell\("{kind}", target, ', KINDS_TS, re.M)


@pytest.mark.parametrize("file", ["vscode.ts", "survival.ts"])
def test_the_guide_shows_the_snippet_that_the_build_checks(file):
    assert f"```ts\n{(SDK / 'examples' / file).read_text(encoding='utf-8')}```" in GUIDE


def test_the_table_of_signals_has_each_kind_with_its_fields():
    table = GUIDE.split("| in the editor |")[1].split("\n\n")[0]
    rows = {kind: cells for kind, cells in re.findall(r"\| `(\w+)` \|([^|]*)\|", table)}
    rows["accepted"] = "`characters` `whole`"
    assert set(rows) == set(KINDS)
    for kind, cells in rows.items():
        assert set(re.findall(r"`(\w+)`", cells)) == set(KINDS[kind].model_fields) - {"kind"}, kind


def test_the_snippet_tells_each_kind_that_an_editor_sees():
    example = (SDK / "examples/vscode.ts").read_text(encoding="utf-8")
    unseen = {"merged", "tool_result", "test_result", "build_result", "error"}
    told = {re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name) for name in re.findall(r"events\.(\w+)\(", example)}
    assert set(KINDS) - unseen <= told


def test_the_limits_of_the_guide_are_those_of_the_sdks():
    typescript = (SDK / "src/limits.ts").read_text(encoding="utf-8") + (SDK / "src/node.ts").read_text(encoding="utf-8")
    table = GUIDE.split("| limit (Python / TypeScript) |")[1].split("\n\n")[0]
    names = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines()[2:]]
    assert {name for row in names for name in row if "_" in name} == {field.name for field in fields(Limits)}
    for name in (name for row in names for name in row if "_" not in name and name != "FileSpool"):
        assert re.search(rf"\b{name}\b", typescript), name


def test_the_guides_python_compiles_and_its_event_is_taken():
    for block in re.findall(r"```python\n(.*?)```", GUIDE, re.S):
        compile(block, "guide", "exec")
    (event,) = re.findall(r"```json\n(.*?)```", GUIDE, re.S)
    (piece,) = cut(f"[{json.dumps(json.loads(event))}]".encode(), batch=True)
    assert decode(piece, EPOCH, {"tab"}, 65_536).code == 202


EVENT = {
    **{"specversion": "1.0", "id": "e1", "source": "/test/1.0", "type": "slipstream.shown", "policy": "tab"},
    **{"turnid": "ep-1.1-0", "time": "2026-01-01T12:00:00Z"},
}
REFUSED = {
    "not_json": b"NaN",
    "not_an_object": b"7",
    "bad_field": json.dumps(EVENT | {"time": "2026-01-01T12:00:00"}).encode(),
    "unknown_policy": json.dumps(EVENT | {"policy": "chat"}).encode(),
    "no_turn_named": json.dumps(EVENT | {"turnid": None}).encode(),
    "bad_turn_id": json.dumps(EVENT | {"turnid": "nodot"}).encode(),
    "too_large": json.dumps(EVENT | {"source": "/" + "x" * 70_000}).encode(),
    "no_consent": json.dumps(EVENT | {"consent": False}).encode(),
}


def test_the_guide_names_each_reason_to_refuse_an_event():
    for reason, body in REFUSED.items():
        (piece,) = cut(b"[" + body + b"]", batch=True)
        record = decode(piece, EPOCH, {"tab"}, 65_536).record
        assert isinstance(record, Refusal) and record.reason == reason
    given = re.findall(r"_Refused\(\d+, \"(\w+)\"", (ROOT / "ingest/collect/decode.py").read_text(encoding="utf-8"))
    assert set(given) <= set(REFUSED)
    named = GUIDE.split("A refused event has a `reason` to count by: ")[1].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", named)) == set(REFUSED)


@pytest.mark.parametrize("time", ["yesterday", "2026-02-30T12:00:00Z", None])
def test_a_time_that_cannot_be_read_is_the_moment_of_arrival_and_a_note_says_so(time):
    (piece,) = cut(json.dumps([EVENT | {"time": time}]).encode(), batch=True)
    judged = decode(piece, EPOCH, {"tab"}, 65_536)
    assert judged.code == 202 and judged.note is not None and judged.record.occurred_at == EPOCH
