"""What the guide for producers says about bounds and codes is what the collector does."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from contracts.outcome import Outcome, Refusal
from ingest.collect.decode import Judged, decode
from ingest.collect.pieces import cut
from ingest.config import IngestConfig
from tests.collector import cloud_event
from tests.conftest import EPOCH, REPOSITORY

GUIDE = (REPOSITORY / "docs/producers.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\|[^|]*\| `(\w+)` \|(.*)\|$", GUIDE, re.MULTILINE))
USUAL = IngestConfig.model_fields["max_event_bytes"].default


def judge(event: dict[str, Any], most: int = USUAL) -> Judged:
    return decode(cut(json.dumps(event).encode(), batch=False)[0], EPOCH, ("tab",), most)


def test_a_follow_up_is_bounded_by_its_event_and_only_then_by_its_characters() -> None:
    assert USUAL == 64 * 1024 and "64 KiB" in ROWS["follow_up"] and "65,536" not in ROWS["follow_up"]
    assert "escaped takes its escape" in GUIDE and "`text` still ends at 65,536 characters" in GUIDE
    for text, most, reason in (
        ("x" * (USUAL - 300), USUAL, None),
        ("x" * USUAL, USUAL, "too_large"),
        ("\u00e9" * (USUAL // 6), USUAL, "too_large"),
        ("x" * 65_536, 2 * USUAL, None),
        ("x" * 65_537, 2 * USUAL, "bad_field"),
    ):
        record = judge(cloud_event("follow_up", data={"text": text}), most).record
        assert (record.reason if isinstance(record, Refusal) else None) == reason


@pytest.mark.parametrize(
    ("kind", "field", "others"),
    [
        ("tool_result", "tool", {"valid": True}),
        ("tool_result", "error", {"tool": "grep", "valid": True}),
        ("test_result", "error", {"passed": None, "failed": None}),
        ("error", "error", {}),
    ],
)
def test_what_the_guide_calls_a_short_code_is_one(kind: str, field: str, others: dict[str, Any]) -> None:
    assert "short code" in ROWS[kind]
    for code in ("time_out:3", "9" * 128):
        assert isinstance(judge(cloud_event(kind, data={**others, field: code})).record, Outcome)
    for no_code in ("two words", "-x", "", "x" * 129):
        refusal = judge(cloud_event(kind, data={**others, field: no_code})).record
        assert isinstance(refusal, Refusal) and refusal.detail.startswith(f"data.{field}: ")


def test_the_guide_says_for_what_there_is_a_note() -> None:
    described = GUIDE.split("with a `note` where")[1].partition("`data` that this collector does not know")
    assert "far ahead" in described[0] and described[1]
    assert judge(cloud_event(data={"characters": 1, "newfield": 1}, time="2099-01-01T00:00:00Z")).note == (
        "time: more than a minute ahead, counts as of its arrival; data: left out what this release does not know: newfield"
    )
