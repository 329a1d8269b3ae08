"""CUPS: what each kind of line becomes, and that neither the file's order nor a strange line can bend it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import StartError
from contracts.outcome import Accepted, Persisted, TypedThrough, Unrecognised
from ingest.replay.recording import read_recording
from ingest.replay.source import SOURCES, Answer, Event, Told
from tests.conftest import REPOSITORY

FILE = REPOSITORY / "tests" / "flow" / "recordings" / "cups.jsonl"
LINES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def read(lines: list[dict[str, Any]]) -> list[Told]:
    return list(SOURCES.get("cups")().read(lines))


def events(told: list[Told], suggestion: str) -> list[Event]:
    return [one for one in told if isinstance(one, Event) and one.episode == suggestion]


def test_a_suggestion_is_an_episode_from_its_answer_to_its_closing() -> None:
    told = read(LINES)
    mine = [one for one in told if one.episode == "u00-s0000"]
    answer = mine[0]
    assert isinstance(answer, Answer) and answer.latency_ms == 366.0 and (answer.at - answer.asked_at).total_seconds() == 0.366
    kinds = [one.happening.kind for one in mine if isinstance(one, Event)]
    assert kinds == ["shown", "replayed", "accepted", *["persisted"] * 5, "closed"]
    assert events(told, "u00-s0000")[2].happening == Accepted(characters=38)


def test_an_untouched_text_survives_whole_and_an_edit_takes_its_share() -> None:
    checks = [one.happening for one in events(read(LINES), "u17-s0009") if isinstance(one.happening, Persisted)]
    assert [(check.after_s, round(check.surviving, 3)) for check in checks] == [
        (15, 0.222),
        (30, 0.333),
        (120, 0.556),
        (300, 0.556),
        (600, 0.556),
    ]


def test_a_recording_that_begins_with_a_replay_has_no_exposure_to_tell_of() -> None:
    told = read(LINES)
    first = next(one for one in told if one.episode == "u18-s0000")
    assert isinstance(first, Answer) and first.latency_ms is None and first.asked_at < first.at
    assert [one.happening.kind for one in events(told, "u18-s0000")][:2] == ["replayed", "accepted"]


def test_browsing_is_kept_as_a_kind_of_its_own_with_the_text_that_was_on_screen() -> None:
    (browsing,) = [one.happening for one in events(read(LINES), "u17-s0009") if one.happening.kind == "browsing"]
    assert isinstance(browsing, Unrecognised) and "num < target" in browsing.model_dump()["text"]


@pytest.mark.parametrize(("fraction", "typed"), [(None, False), (0.0, False), (0.25, True), (1.0, True)])
def test_a_rejection_with_an_edit_fraction_was_typed_through(fraction: float | None, typed: bool) -> None:
    line = next(line for line in LINES if line["type"] == "rejected")
    told = events(read([line if fraction is None else {**line, "edit_fraction": fraction}]), line["suggestion_id"])
    assert [one.happening for one in told[1:-1]] == ([TypedThrough()] if typed else [])
    assert len({one.event_id for one in told}) == len(told)


def test_any_number_of_digits_makes_a_time() -> None:
    line = next(line for line in LINES if line["type"] == "shown")
    times = [line["ts"][:19] + fraction + "Z" for fraction in ("", ".5", ".17", ".123", ".1234567")]
    told = read([{**line, "event_id": f"e{n}", "ts": time} for n, time in enumerate(times)])
    assert [one.at.microsecond for one in told if isinstance(one, Event)] == [0, 123000, 123456, 170000, 500000, 500000]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"type": "hovered"}, "line 2: type: Input should be 'shown'"),
        ({"ts": "2022-08-08T16:05:28"}, "line 2: ts: Input should have timezone info"),
        ({"suggestion_id": ""}, "line 2: suggestion_id"),
        ({"edit_fraction": 1.5}, "line 2: edit_fraction"),
        ({"measurements": {"timeSinceIssuedMs": "soon"}}, "line 2: measurements.timeSinceIssuedMs"),
    ],
)
def test_a_line_that_is_none_is_named_before_anything_is_told(change: dict[str, Any], says: str) -> None:
    with pytest.raises(StartError, match=says):
        read([LINES[0], {**LINES[1], **change}])


@settings(max_examples=30, deadline=None)
@given(seed=st.randoms(use_true_random=False))
def test_the_order_of_the_lines_leaves_no_trace(seed: random.Random) -> None:
    """As long as no two of them have one time."""
    shuffled = list(LINES)
    seed.shuffle(shuffled)
    assert read(shuffled) == read(LINES)


def test_a_file_that_is_no_recording_is_named_with_its_line(tmp_path) -> None:
    file = tmp_path / "broken.jsonl"
    source = SOURCES.get("cups")()
    for content, says in (
        (b'{"a": 1', "line 1: not JSON"),
        (b"\n\n[1]", "line 3: expected an object, got list"),
        (b"\n", "no lines"),
    ):
        file.write_bytes(content)
        with pytest.raises(StartError, match=says):
            read_recording(source, file)
    with pytest.raises(StartError, match=r"cannot read .*nowhere"):
        read_recording(source, tmp_path / "nowhere")
