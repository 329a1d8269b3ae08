"""What a replay tells, when, and to a collector that is not always there."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from contracts.errors import Retry, StartError, UnknownName
from contracts.ids import is_withheld
from contracts.outcome import Accepted, Closed, Outcome, Refusal, Shown
from contracts.topics import TURNS
from contracts.turn import Turn
from infra.eventlog.embedded import EmbeddedLog
from ingest.collect.decode import decode
from ingest.collect.pieces import cut
from ingest.replay.collector import Busy, Collector
from ingest.replay.loop import Teller
from ingest.replay.pace import Pace
from ingest.replay.progress import Progress
from ingest.replay.screen import Screen
from ingest.replay.source import SOURCES, Answer, Event, Told
from ingest.replay.translate import Replay
from tests.unit.ingest.sdk_server import Answer as Says
from tests.unit.ingest.sdk_server import Collector as Served
from tests.unit.ingest.sdk_server import all_taken, serving

NOW = datetime(2022, 8, 8, 16, tzinfo=UTC)
HOW = Replay("cups", "tab", b"key")


def answer(n: int = 0, **changes: Any) -> Answer:
    fields = {"at": NOW, "asked_at": NOW, "episode": f"u{n}", "n": "1", "person": "ada", "text": "x = 1"}
    return Answer(**{**fields, **changes})


def event(number: int = 0, **changes: Any) -> Event:
    fields = {"at": NOW, "event_id": f"e{number}", "episode": "u0", "n": "1", "happening": Shown()}
    return Event(**{**fields, **changes})


def taken(wire: dict[str, Any]) -> Outcome | Refusal:
    """As the collector judges it."""
    return decode(cut(json.dumps(wire).encode(), batch=False)[0], NOW, ("tab",), 10_000).record


def test_a_recorded_turn_knows_its_text_and_says_that_it_knows_no_tokens() -> None:
    turn = HOW.turn(answer(version="gpt", latency_ms=20.0, parent="0"))
    assert Turn.decode(turn.encode()) == turn
    assert (turn.text, turn.version, turn.latency_ms, turn.parent_turn_id) == ("x = 1", "gpt", 20.0, "cups:tab:u0.0")
    assert (turn.prompt_ids, turn.completion_ids, turn.logps, turn.sampling) == (None,) * 4
    assert turn.arm == "pinned" and turn.experiment is None, "no experiment ever counts it"
    assert "ada" not in turn.encode().decode()


def test_a_secret_in_a_recorded_answer_is_known_by_its_kind() -> None:
    assert HOW.turn(answer(text='aws = "AKIA' + 'IOSFODNN7EXAMPLQ"')).secrets
    assert HOW.turn(answer()).secrets == ()


def test_an_event_is_what_the_collector_takes() -> None:
    outcome = taken(HOW.event(event(happening=Accepted(characters=5))))
    assert isinstance(outcome, Outcome)
    assert (outcome.event_id, outcome.turn_id, outcome.episode_id) == ("cups:tab:e0", "cups:tab:u0.1", "cups:tab:u0")
    assert outcome.occurred_at == NOW and outcome.happening == Accepted(characters=5)
    of_episode = taken(HOW.event(event(n=None, happening=Closed())))
    assert isinstance(of_episode, Outcome) and of_episode.turn_id is None


def test_of_who_opted_out_an_event_says_nothing() -> None:
    how = Replay("cups", "tab", b"key", withheld=frozenset({"u0"}))
    wire = how.event(event(happening=Accepted(characters=5)))
    assert is_withheld(wire["turnid"]) and wire["consent"] is False and "data" not in wire
    refusal = taken(wire)
    assert isinstance(refusal, Refusal) and (refusal.reason, refusal.event_id) == ("no_consent", None)


def test_one_recording_told_to_two_policies_is_told_to_each() -> None:
    other = Replay("cups", "chat", b"key")
    assert HOW.turn(answer()).turn_id != other.turn(answer()).turn_id
    assert HOW.event(event())["id"] != other.event(event())["id"]


def test_an_id_that_cannot_be_a_name_is_named() -> None:
    with pytest.raises(StartError, match="answer '1' of 'a b'"):
        HOW.turn(answer(episode="a b"))


@given(
    pauses=st.lists(st.floats(0, 100_000), max_size=20),
    speed=st.floats(0.1, 10_000),
    longest=st.none() | st.floats(0, 1_000),
)
def test_pauses_are_divided_by_the_speed_and_cut_off(pauses: list[float], speed: float, longest: float | None) -> None:
    pace, at, expected = Pace(speed, longest), NOW, 0.0
    assert pace.due_s(at) == 0.0
    for pause in pauses:
        before, at = at, at + timedelta(seconds=pause)
        recorded = (at - before).total_seconds()
        expected += (recorded if longest is None else min(recorded, longest)) / speed
        assert pace.due_s(at) == pytest.approx(expected)
        assert pace.due_s(at - timedelta(seconds=1)) == pytest.approx(expected), "time never goes back"
    assert Pace(0).due_s(NOW) == 0.0


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(Served()) as made:
        made.url += "/v1/events"
        yield made


def test_a_collector_that_is_away_or_busy_is_asked_again_and_one_that_refuses_is_not(served: Served) -> None:
    collector = Collector(served.url, "sk_1")
    assert collector.send([HOW.event(event())]) == []
    assert served.requests[0].headers["authorization"] == "Bearer sk_1"
    assert served.requests[0].headers["content-type"] == "application/cloudevents-batch+json"
    served.answers = lambda _: Says(503, {"error": {"message": "the spool is full"}}, {"Retry-After": "2"})
    with pytest.raises(Busy, match="503: the spool is full") as busy:
        collector.send([])
    assert busy.value.after_s == 2.0
    served.answers = lambda _: Says(401, {"error": {"message": "a key is needed"}})
    with pytest.raises(StartError, match="401: a key is needed"):
        collector.send([])
    served.answers = lambda _: Says(200, {"hello": "world"})
    with pytest.raises(StartError, match="does not answer as a collector does"):
        collector.send([])
    with pytest.raises(Retry, match="does not answer"):
        Collector("http://127.0.0.1:9/v1/events").send([])
    with pytest.raises(StartError, match=r"no collector answers at .*slipstream up"):
        Collector("http://127.0.0.1:9/v1/events").look()


def test_steps_count_as_done_only_when_log_and_collector_have_them(served: Served, tmp_path: Path) -> None:
    """The second request fails twice; the third is interrupted, and the next run goes on there."""
    log = EmbeddedLog(tmp_path / "log.db")
    log.ensure([TURNS])
    told: list[Told] = [one for n in range(300) for one in (answer(n), event(n, episode=f"u{n}"))]
    progress, stop, script = Progress(tmp_path, "cups", "tab", "d" * 64), threading.Event(), [202, 503, 503, 202]

    def answers(events: list[dict[str, Any]]) -> Says:
        if not script:
            stop.set()
        return all_taken(events) if script and script.pop(0) == 202 else Says(503, {"error": {"message": "full"}})

    served.answers = answers
    said = io.StringIO()

    def run() -> None:
        with Screen(Console(file=said), "telling", len(told), 0) as screen:
            teller = Teller(HOW, log, Collector(served.url), progress, screen)
            assert teller.tell(told, progress.read(), Pace(0), stop) == []

    run()
    assert progress.read() == 400 and "waiting: the collector answers 503" in said.getvalue()
    stop.clear()
    served.answers = all_taken
    run()
    assert progress.read() == 600
    assert served.ids == [f"cups:tab:e{n}" for n in range(300)]
    assert sum(log.ends(TURNS.name).values()) == 100 + 3 * 100 + 2 * 100, "turns are in the log again where a batch was told again"
    log.close()


def test_a_damaged_mark_counts_as_none(tmp_path: Path) -> None:
    progress = Progress(tmp_path, "cups", "tab", "d" * 64)
    progress.write(7)
    assert progress.read() == 7
    (mark,) = (tmp_path / "replay").iterdir()
    mark.write_text("seven")
    assert progress.read() == 0
    progress.clear()
    assert progress.read() == 0 and not list((tmp_path / "replay").iterdir())


def test_an_unknown_source_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="no replay source is called 'nope'; there are: cups, rhe_chat"):
        SOURCES.get("nope")
