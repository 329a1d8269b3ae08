"""RealHumanEval's chats: conversations are found, follow-ups belong to the answer before them, copies to theirs."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import StartError
from contracts.outcome import Copied, FollowUp
from ingest.replay.source import SOURCES, Answer, Event, Told
from tests.conftest import REPOSITORY

FILE = REPOSITORY / "tests" / "flow" / "recordings" / "rhe_chat.jsonl"
LINES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def read(lines: list[dict[str, Any]]) -> list[Told]:
    return list(SOURCES.get("rhe_chat")().read(lines))


def said(*texts: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * len(texts), texts, strict=False)]


def message(name: str, t_s: float, *history: str, session: str = "s", response: str | None = None) -> dict[str, Any]:
    return {
        "type": "chat_message",
        "event_id": f"{name}-req",
        "message_id": name,
        "user": "p1",
        "session": session,
        "t_s": t_s,
        "model": "GPT-4o (chat)",
        "messages": said(*history),
        "response": response or f"answer {name}",
    }


def test_a_conversation_is_an_episode_and_each_answer_a_turn_of_it() -> None:
    told = read([message("m0", 0, "q0"), message("m1", 9, "q0", "answer m0", "q1")])
    first, follows, second, closed = told
    assert isinstance(first, Answer) and isinstance(second, Answer)
    assert (first.episode, first.n, first.parent, first.version) == ("m0", "m0", None, "GPT-4o")
    assert (second.episode, second.n, second.parent) == ("m0", "m1", "m0")
    assert isinstance(follows, Event) and (follows.n, follows.happening) == ("m0", FollowUp(text="q1"))
    assert follows.at == second.at and (second.at - first.at).total_seconds() == 9
    assert isinstance(closed, Event) and (closed.event_id, closed.n, closed.at) == ("m0-closed", None, second.at)


def test_a_history_that_is_another_one_begins_another_conversation() -> None:
    told = read([message("m0", 0, "q"), message("m1", 5, "q"), message("m2", 9, "q", "answer m1", "more")])
    assert [(one.episode, one.n) for one in told if isinstance(one, Answer)] == [("m0", "m0"), ("m1", "m1"), ("m1", "m2")]
    assert [one.n for one in told if isinstance(one, Event) and one.happening.kind == "follow_up"] == ["m1"]


def test_after_a_lost_answer_what_was_written_first_is_what_followed() -> None:
    lost = message("m1", 9)
    lost["messages"] = [*said("q0", "answer m0"), {"role": "user", "content": "q1"}, {"role": "user", "content": "q1 again"}]
    told = read([message("m0", 0, "q0"), lost])
    assert next(one.happening for one in told if isinstance(one, Event)) == FollowUp(text="q1")


def test_a_copy_belongs_to_its_answer_and_has_the_earliest_time_it_can_have() -> None:
    copy = {"type": "copy", "event_id": "c", "message_id": "m0", "copied": "x = 1"}
    told = read([message("m0", 3, "q0"), message("m1", 9, "q0", "answer m0", "q1"), copy])
    (copied,) = [one for one in told if isinstance(one, Event) and one.event_id == "c"]
    assert (copied.n, copied.at, copied.happening) == ("m0", told[0].at, Copied(characters=5))
    with pytest.raises(StartError, match="line 1: a copy of m0, which no line before it tells of"):
        read([copy])


def test_a_line_without_history_is_a_conversation_of_one_answer() -> None:
    told = read([message("m0", 0), message("m1", 5, "q")])
    assert [one.episode for one in told if isinstance(one, Answer)] == ["m0", "m1"]


def test_people_are_merged_by_time_and_keep_their_order() -> None:
    told = read([message("a0", 7, "q", session="a"), message("b0", 1, "q", session="b"), message("b1", 8, "x", session="b")])
    assert [one.n for one in told if isinstance(one, Answer)] == ["b0", "a0", "b1"]
    assert [one.at for one in told] == sorted(one.at for one in told)


def test_the_excerpt() -> None:
    told = read(LINES)
    kinds = Counter("turn" if isinstance(one, Answer) else one.happening.kind for one in told)
    assert kinds == Counter(turn=11, copied=7, follow_up=3, closed=8)


def test_a_line_of_another_kind_is_named() -> None:
    with pytest.raises(StartError, match=r"line 1: .*type"):
        read([{"type": "thumb"}])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["goes on", "anew", "after a lost answer"]), min_size=1, max_size=12))
def test_every_answer_is_told_once_and_followed_at_most_once(steps: list[str]) -> None:
    lines: list[dict[str, Any]] = []
    heard: list[dict[str, str]] = []
    for n, step in enumerate(steps):
        if step == "anew":
            heard = []
        line = message(f"m{n}", float(n))
        between = [{"role": "user", "content": f"lost {n}"}] if step == "after a lost answer" else []
        line["messages"] = [*heard, *between, {"role": "user", "content": f"q{n}"}]
        heard = [*line["messages"], {"role": "assistant", "content": line["response"]}]
        lines.append(line)
    told = read(lines)
    answers = [one.n for one in told if isinstance(one, Answer)]
    followed = [one.n for one in told if isinstance(one, Event) and one.happening.kind == "follow_up"]
    assert answers == [f"m{n}" for n in range(len(steps))]
    assert followed == [f"m{n - 1}" for n, step in enumerate(steps) if n and step != "anew"]
