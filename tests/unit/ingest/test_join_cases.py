"""Failures that others have had in public, as inputs of the joiner. Each is one of a kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from contracts.outcome import Outcome
from contracts.states import Disposition, EpisodeState
from infra.clock import to_ms
from infra.db.engine import open_db, writing
from infra.db.query import Engine
from infra.db.tables.ingest import EpisodeRow
from ingest.join.joiner import Joiner
from rewarding.blend import Blend
from tests.conftest import EPOCH
from tests.unit.ingest.join_world import deliver, read_books, read_up_to


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_db(f"sqlite:///{tmp_path / 'db'}")


@pytest.fixture
def joiner(tab_policy, hands) -> Joiner:
    return Joiner({"tab": tab_policy}, hands)


def episode(engine: Engine, name: str = "ep-1"):
    return read_books(engine).episodes[name]


def kinds(engine: Engine) -> list[str]:
    return [outcome.happening.kind for outcome in episode(engine).outcomes]


def at(outcome_of, kind: str, event_id: str, occurred: datetime, received: datetime, **more) -> Outcome:
    return outcome_of(kind, event_id, occurred_at=occurred, received_at=received, **more)


def test_feedback_sent_at_once_after_the_answer_waits_for_its_episode(engine, joiner, turn_of, outcome_of):
    """ "Episode ID ... does not exist": under load the feedback overtakes the answer it is about."""
    deliver(engine, joiner, outcome_of("accepted", "e1", at_s=0.001), outcome_of("closed", "e2", at_s=0.002))
    assert read_books(engine).episodes == {}
    deliver(engine, joiner, turn_of(at_s=0.0))
    assert kinds(engine) == ["accepted", "closed"]


def test_a_hook_that_runs_twice_counts_once(engine, joiner, turn_of, outcome_of, tab_policy):
    """A post-commit hook ran twice on one inference: two edit-distance rewards."""
    once = outcome_of("edited", "hook-1", at_s=2, happening={"surviving": 0.5})
    deliver(engine, joiner, turn_of(), outcome_of("accepted", "a"), once, once)
    deliver(engine, joiner, once, outcome_of("closed", "c", at_s=9))
    assert kinds(engine) == ["accepted", "edited", "closed"]
    rewarded = Blend(tab_policy.reward).judge(episode(engine)).reward
    deliver(engine, joiner, outcome_of("edited", "hook-2", at_s=2, happening={"surviving": 0.5}))  # and under an id of its own
    again = Blend(tab_policy.reward).judge(episode(engine)).reward
    assert [part.value for part in again.parts] == [part.value for part in rewarded.parts]


@pytest.mark.parametrize("reverse", [False, True])
def test_one_id_with_another_timestamp_is_the_first_telling(engine, joiner, turn_of, outcome_of, reverse):
    first = at(outcome_of, "accepted", "e1", EPOCH + timedelta(seconds=2), EPOCH + timedelta(seconds=3))
    second = at(outcome_of, "accepted", "e1", EPOCH + timedelta(seconds=40), EPOCH + timedelta(seconds=41))
    deliver(engine, joiner, turn_of(), outcome_of("closed", "c", at_s=50))
    for telling in (second, first) if reverse else (first, second):
        deliver(engine, joiner, telling)
    assert episode(engine).outcomes[0] == first
    assert read_books(engine).counters == {"repeated_events": 1}


@pytest.mark.parametrize("reverse", [False, True])
def test_a_changed_thumb_replaces_in_the_order_of_changing(engine, joiner, turn_of, outcome_of, reverse):
    up, down = (
        outcome_of("thumbs", "t1", at_s=3, happening={"up": True}),
        outcome_of("thumbs", "t2", at_s=5, happening={"up": False}),
    )
    deliver(engine, joiner, turn_of(), *((down, up) if reverse else (up, down)), outcome_of("closed", "c", at_s=9))
    assert [o.happening.up for o in episode(engine).outcomes if o.happening.kind == "thumbs"] == [True, False]


def test_two_weeks_in_the_future_is_clamped_flagged_and_closes_its_window(engine, joiner, turn_of, outcome_of, hands, tab_policy):
    """sentAt 2024-05-21T00:08:54Z, timestamp 2024-06-04T11:36:12Z."""
    sent, told = datetime(2024, 5, 21, 0, 8, 54, tzinfo=UTC), datetime(2024, 6, 4, 11, 36, 12, tzinfo=UTC)
    deliver(engine, joiner, turn_of(started_at=sent - timedelta(seconds=4)), at(outcome_of, "accepted", "e1", told, sent))
    deliver(engine, joiner, at(outcome_of, "reverted", "e2", sent + timedelta(seconds=1), sent + timedelta(seconds=2)))
    over = sent + timedelta(seconds=1 + tab_policy.quiet_seconds)
    assert joiner.close_quiet(engine, read_up_to(to_ms(over) - 1)) == 0
    assert joiner.close_quiet(engine, read_up_to(to_ms(over))) == 1
    assert kinds(engine) == ["accepted", "reverted"] and episode(engine).closed_at == over
    assert read_books(engine).counters == {"clocks.ahead": 1}


def test_an_offline_event_keeps_its_time_and_makes_a_new_revision(engine, joiner, turn_of, outcome_of, tab_policy):
    deliver(engine, joiner, turn_of(), outcome_of("accepted", "e1", at_s=1))
    joiner.close_quiet(engine, read_up_to(to_ms(EPOCH) + 60_000))
    closed_at = episode(engine).closed_at
    late = at(outcome_of, "rejected", "e0", EPOCH + timedelta(seconds=0.5), EPOCH + timedelta(minutes=9))
    deliver(engine, joiner, late)
    assert kinds(engine) == ["rejected", "accepted"] and episode(engine).closed_at == closed_at
    assert read_books(engine).counters == {}


def test_a_time_before_the_turn_began_is_when_it_began(engine, joiner, turn_of, outcome_of):
    garbage = datetime(1, 1, 1, tzinfo=UTC)
    told = at(outcome_of, "closed", "e1", garbage, EPOCH + timedelta(seconds=70), n=None)
    deliver(engine, joiner, turn_of(at_s=60), at(outcome_of, "accepted", "e2", garbage, EPOCH + timedelta(seconds=65)), told)
    assert episode(engine).closed_at == EPOCH + timedelta(seconds=60)
    assert episode(engine).outcomes[0].occurred_at == garbage, "what the client said is kept"
    assert read_books(engine).counters == {"clocks.behind": 2}


def test_news_never_moves_the_end_of_a_window_back(engine, joiner, turn_of, outcome_of):
    """last_seen never goes back."""
    deliver(engine, joiner, turn_of(), outcome_of("shown", "e1", at_s=30))
    deliver(engine, joiner, outcome_of("accepted", "e2", at_s=2))
    assert joiner.close_quiet(engine, read_up_to(to_ms(EPOCH + timedelta(seconds=31)))) == 0


def test_windows_do_not_shift_with_daylight_saving(engine, joiner, turn_of, outcome_of, tab_policy):
    """America/New_York, 2026-03-08: 01:59:59 is followed by 03:00:00. In UTC that is one second."""
    york = ZoneInfo("America/New_York")
    before, after = (datetime(2026, 3, 8, *clock, tzinfo=york) for clock in ((1, 59, 59), (3, 0, 0)))
    assert after.astimezone(UTC) - before.astimezone(UTC) == timedelta(seconds=1)
    deliver(engine, joiner, turn_of(started_at=before), at(outcome_of, "accepted", "e1", after, after))
    over = after.astimezone(UTC) + timedelta(seconds=tab_policy.quiet_seconds)
    assert joiner.close_quiet(engine, read_up_to(to_ms(over) - 1)) == 0
    assert joiner.close_quiet(engine, read_up_to(to_ms(over))) == 1
    assert episode(engine).closed_at == over


def test_any_offset_and_any_fraction_is_the_same_moment(engine, joiner, turn_of, outcome_of):
    for n, said in enumerate(("2026-01-01T02:00:03.5+02:00", "2026-01-01T00:00:03.50Z", "2025-12-31T19:00:03.500-05:00")):
        deliver(engine, joiner, outcome_of("shown", f"e{n}", occurred_at=said, received_at=EPOCH + timedelta(seconds=9)))
    deliver(engine, joiner, outcome_of("accepted", "e3", at_s=3.4), turn_of(), outcome_of("closed", "e4", at_s=4))
    assert [one.event_id for one in episode(engine).outcomes] == ["e3", "e0", "e1", "e2", "e4"]


def test_a_consumer_that_lost_its_partition_and_comes_with_the_same_batch_changes_nothing(engine, joiner, turn_of, outcome_of):
    """Three consumers, a slow handler, a rebalance: one message handled by two."""
    batch = (turn_of(), outcome_of("accepted", "e1"), outcome_of("closed", "e2", at_s=2))
    deliver(engine, joiner, *batch)
    with writing(engine) as session:
        revision = session.get(EpisodeRow, "ep-1").revision
    deliver(engine, joiner, *batch)
    with writing(engine) as session:
        assert session.get(EpisodeRow, "ep-1").revision == revision
    assert kinds(engine) == ["accepted", "closed"]


def test_what_comes_after_training_is_late_and_counted_turns_too(engine, joiner, turn_of, outcome_of):
    deliver(engine, joiner, turn_of(), outcome_of("closed", "e1"))
    trained_on = episode(engine)
    with writing(engine) as session:
        session.get(EpisodeRow, "ep-1").state = EpisodeState.CONSUMED
    deliver(engine, joiner, outcome_of("persisted", "e2", n="1-1", at_s=5), outcome_of("reverted", "e3", at_s=6))
    deliver(engine, joiner, turn_of(n="1-1", at_s=4))
    books = read_books(engine)
    assert {event: fate for event, (fate, _) in books.fates.items()} == {
        "e1": Disposition.JOINED,
        "e2": Disposition.LATE,
        "e3": Disposition.LATE,
    }
    assert books.episodes["ep-1"] == trained_on and books.counters == {"turns.late": 1}


def test_without_consent_only_a_count_is_left(engine, joiner, turn_of, outcome_of):
    deliver(engine, joiner, turn_of(consent=False), outcome_of("accepted", "e1"), outcome_of("closed", "e2", at_s=2))
    joiner.close_quiet(engine, read_up_to(to_ms(EPOCH) + 10**9))
    books = read_books(engine)
    assert books.episodes == {} and books.counters == {"turns.no_consent": 1}
    assert set(books.fates.values()) == {(Disposition.REFUSED, "no_turn")}
