"""The crowd's memory and its quirks: a plan is a function of its seed, events are kept until they were taken."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harness.developers.ledger import Ledger
from harness.developers.plan import Habits, Plan
from harness.developers.reaction import Answer, react, verdict
from harness.tiny.corpus import SourceFile

CODE = SourceFile("a.py", "import os\n\n\ndef where(name):\n    return os.path.join(os.getcwd(), name)\n" * 20)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLAIN = Habits(resent=0, out_of_order=0, never_closed=0, looked_at_later=1, skewed_clock=0, broken_client=0, foreign_turn=0)


def answer(text: str) -> Answer:
    return Answer("ep-1.1-0", "ep-1", "tab-v0000", text)


def test_a_request_is_a_function_of_seed_and_number():
    one, again, other = (Plan([CODE], Habits(), seed) for seed in (1, 1, 2))
    assert [one.request(n).question for n in range(20)] == [again.request(n).question for n in range(20)]
    assert [one.request(n).question for n in range(20)] != [other.request(n).question for n in range(20)]


def test_what_the_file_says_next_is_accepted_and_nothing_else():
    request = Plan([CODE], PLAIN, 1).request(3)
    following = request.question.following
    assert verdict(answer(following[:12]), request) is True
    assert verdict(answer("xyzzy" + following), request) is False
    assert verdict(answer(""), request) is None and verdict(answer("  \n"), request) is None


def test_an_accepted_answer_leads_to_shown_accepted_closed_and_a_later_look():
    request = Plan([CODE], PLAIN, 1).request(3)
    due = react(request, answer(request.question.following[:12]), PLAIN, "tab", NOW)
    kinds = [one.event["type"].removeprefix("slipstream.") for one in due]
    assert kinds[:3] == ["shown", "accepted", "closed"] and kinds[3] in ("persisted", "edited", "reverted")
    assert due[3].after_s >= 1.0 and len({one.event["id"] for one in due}) == 4


def test_silence_leads_to_closed_only():
    request = Plan([CODE], PLAIN, 1).request(3)
    assert [one.event["type"].removeprefix("slipstream.") for one in react(request, answer(""), PLAIN, "tab", NOW)] == ["closed"]


@pytest.mark.parametrize(
    ("habit", "shows"),
    [
        ({"broken_client": 1.0}, lambda event: "+" not in event["time"]),
        ({"foreign_turn": 1.0}, lambda event: event["turnid"].startswith("ep-foreign-")),
        ({"skewed_clock": 1.0}, lambda event: event["time"].startswith("2026-01-15")),
    ],
)
def test_quirks_of_clients_show_in_their_first_event(habit, shows):
    habits = PLAIN.model_copy(update=habit)
    request = Plan([CODE], habits, 1).request(3)
    assert shows(react(request, answer(request.question.following[:12]), habits, "tab", NOW)[0].event)


def test_events_are_kept_until_they_were_taken_and_twice_if_they_are_sent_twice(tmp_path):
    habits = PLAIN.model_copy(update={"resent": 1.0})
    request = Plan([CODE], habits, 1).request(3)
    ledger = Ledger(tmp_path / "developers.db")
    due = react(request, answer(""), habits, "tab", NOW)
    ledger.answered(3, request.developer, answer(""), None, 100.0, due)
    ledger.close()
    again = Ledger(tmp_path / "developers.db")
    (waiting,) = again.waiting()
    assert waiting.sendings == 2 and again.done() == {3} and again.sent() == 1
    again.settled([(waiting.event["id"], "taken")])
    again.settled([(waiting.event["id"], "taken")])
    assert again.waiting() == [] and again.unsent() == 0


def test_each_start_has_a_number_of_its_own(tmp_path):
    assert [Ledger(tmp_path / "developers.db").start() for _ in range(3)] == [1, 2, 3]


def test_who_met_a_version_is_counted_by_developer(tmp_path):
    ledger = Ledger(tmp_path / "developers.db")
    for number, (developer, version) in enumerate([("a", "v1"), ("a", "v2"), ("b", "v1"), ("a", "v2")]):
        ledger.answered(number, developer, Answer(f"e{number}.1-0", f"e{number}", version, ""), None, 1.0, [])
    assert ledger.developers_who_met("v2") == (2, 1, 2)
