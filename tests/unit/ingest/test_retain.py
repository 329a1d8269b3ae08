"""Retention: each kind goes when its time is over and not before, what a cycle has claimed stays, the books balance."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.dead_letter import DeadLetter
from contracts.outcome import Refusal
from contracts.policy import Policy, Retention
from contracts.states import Disposition, EpisodeState, SampleState
from contracts.topics import ALL, OUTCOMES, TURNS, dead_letter, grave
from infra.clock import to_ms
from infra.db.engine import open_db, reading, writing
from infra.db.query import Engine, select
from infra.db.tables.ingest import EpisodeRow, OutcomeRow, RefusalRow, RevisionRow, TurnRow
from infra.db.tables.learner import CycleRow
from infra.db.tables.people import GoneEventRow
from infra.db.tables.rewarding import RewardRow, SampleRow
from infra.eventlog.open import open_log
from infra.eventlog.port import Entry, Message
from infra.people import deletion
from infra.settings import Settings
from infra.spool import Spool
from infra.stream import Delivery
from ingest.join.joiner import Joiner
from ingest.retain import sweep as sweeping
from ingest.retain.sweep import Retention as Sweeper
from registry.console.accounting import read_accounting
from tests.conftest import Hands, make_outcome, make_turn

DAYS = Retention(
    raw_days=10, revisions_days=20, rewards_days=30, trained_days=5, refusals_days=4, dead_letters_days=3, payloads_days=9,
    spools_days=2, ids_days=100,
)  # fmt: skip


class World:
    """A joiner's tables, and rewards and samples as a rewarder would leave them."""

    def __init__(self, home: Path, policy: Policy) -> None:
        self.settings = Settings(home=home)
        self.engine: Engine = open_db(self.settings.database)
        self.log = open_log(self.settings)
        self.log.ensure([*ALL, grave(TURNS), grave(OUTCOMES)])
        self.hands = Hands()
        self.policy = policy.model_copy(update={"retention": DAYS})
        self.joiner = Joiner({"tab": self.policy}, self.hands)

    def tell(self, *records) -> None:
        with writing(self.engine) as session:
            place = [Message("turns", 0, 0, None, record.encode(), 0) for record in records]
            self.joiner.apply(session, [Delivery(*pair) for pair in zip(place, records, strict=True)])
            for row in session.exec(select(RevisionRow)).all():
                row.published_ms = to_ms(self.hands())
                session.add(row)

    def sweep(self, days: float = 0.0, batch: int = 2) -> dict[str, int]:
        self.hands.forward(days * 86_400)
        where = deletion.places(self.settings, self.engine, self.log)
        return dict(Sweeper([self.policy], where, self.hands, batch).sweep())

    def reward(self, episode: str, state: SampleState, cycle: str | None = None) -> None:
        now_ms = to_ms(self.hands())
        with writing(self.engine) as session:
            session.add(
                RewardRow(
                    episode_id=episode, spec="tab@1", revision=1, policy="tab", version="v", arm="champion", experiment=None,
                    step=None, subject="s", finish="stop", latency_ms=1.0, value=1.0, closed_ms=now_ms, body="{}",
                )
            )  # fmt: skip
            session.add(
                SampleRow(
                    sample_id=episode, policy="tab", revision=1, state=state, reason=None, cycle_id=cycle, lag_version="v",
                    subject="s", reward=1.0, sampled_ms=now_ms, body="tokens",
                )
            )  # fmt: skip

    def books(self) -> tuple[int, int, int, dict[str, int]]:
        with reading(self.engine) as session:
            books = read_accounting(session, "tab")
        return books.joined, books.late, books.waiting, {one.name: one.count for one in books.refused}

    def rows(self, *tables) -> list[int]:
        with reading(self.engine) as session:
            return [len(session.exec(select(table)).all()) for table in tables]


@pytest.fixture
def world(tmp_path: Path, tab_policy: Policy) -> Iterator[World]:
    made = World(tmp_path / "home", tab_policy)
    yield made
    made.log.close()
    made.engine.dispose()


def episode(name: str, at: Hands, closed: bool = True) -> list:
    now = {"occurred_at": at(), "received_at": at()}
    told = [make_turn(name, started_at=at()), make_outcome("accepted", f"{name}-a", name, **now)]
    return [*told, make_outcome("closed", f"{name}-c", name, **now)] if closed else told


def refusal(name: str, at: Hands, policy: str | None = "tab", event: str | None = None, reason: str = "bad_field") -> Refusal:
    return Refusal(refusal_id=event or name, event_id=event, policy=policy, reason=reason, detail="d", received_at=at())


def test_each_kind_goes_in_its_time_and_the_sums_stay(world):
    for n in range(5):
        world.tell(*episode(f"ep-{n}", world.hands))
        world.reward(f"ep-{n}", SampleState.READY)
    before = world.books()
    assert before[0] == 10
    assert world.sweep(days=9.9) == {}, "not before its time"
    assert world.sweep(days=0.2) == {"raw": 15}
    assert world.books() == before and world.rows(TurnRow, OutcomeRow, GoneEventRow) == [0, 0, 10]
    assert world.sweep(days=9) == {} and world.sweep(days=1) == {"revisions": 5}
    assert world.rows(RewardRow, SampleRow, EpisodeRow) == [5, 5, 5]
    assert world.sweep(days=10) == {"rewards": 5, "samples": 5, "episodes": 5}
    assert world.rows(EpisodeRow, RevisionRow, RewardRow, SampleRow) == [0, 0, 0, 0]
    assert world.sweep() == {} and world.books() == before, "sweeping again is harmless"
    assert world.sweep(days=90) == {"ids": 10}


def test_what_a_running_cycle_has_claimed_stays_until_it_has_ended(world):
    world.tell(*episode("ep-1", world.hands))
    world.reward("ep-1", SampleState.CLAIMED, "cycle-1")
    assert world.sweep(days=400) == {}
    assert world.rows(TurnRow, OutcomeRow, RevisionRow, RewardRow, SampleRow, EpisodeRow) == [1, 2, 1, 1, 1, 1]
    with writing(world.engine) as session:
        row = session.get(SampleRow, "ep-1")
        row.state = SampleState.READY
        session.add(row)
    assert world.sweep() == {"raw": 3, "revisions": 1, "rewards": 1, "samples": 1, "episodes": 1}


def test_what_was_trained_on_keeps_its_row_for_lineage_and_loses_its_tokens(world):
    world.tell(*episode("ep-1", world.hands))
    world.reward("ep-1", SampleState.CONSUMED, "cycle-1")
    ended = to_ms(world.hands() + timedelta(days=30))
    with writing(world.engine) as session:
        session.add(
            CycleRow(
                cycle_id="cycle-1", policy="tab", state="sealed", fence=1, parent="p", version="v2", samples=1, reason=None,
                stats="{}", started_ms=0, ended_ms=ended,
            )
        )  # fmt: skip
        mine = session.get(EpisodeRow, "ep-1")
        mine.state = EpisodeState.CONSUMED
        session.add(mine)
    assert "trained" not in world.sweep(days=34)
    assert world.sweep(days=2) == {"trained": 1} and world.sweep() == {}
    with reading(world.engine) as session:
        row = session.get(SampleRow, "ep-1")
        assert (row.body, row.state, row.subject, row.cycle_id) == ("", SampleState.CONSUMED, "s", "cycle-1")


def test_an_open_episode_and_an_outcome_that_waits_stay(world):
    world.tell(*episode("ep-1", world.hands, closed=False))
    world.tell(make_outcome("accepted", "w", "ep-none", received_at=world.hands(), occurred_at=world.hands()))
    assert world.sweep(days=400) == {} and world.books() == (1, 0, 1, {})


def test_orphans_and_late_ones_go_with_their_reason(world, tab_policy):
    world.tell(*episode("ep-1", world.hands))
    world.tell(make_outcome("accepted", "orphan", "ep-none", received_at=world.hands(), occurred_at=world.hands()))
    with writing(world.engine) as session:
        row = session.get(EpisodeRow, "ep-1")
        row.state = EpisodeState.CONSUMED
        session.add(row)
        orphan = session.get(OutcomeRow, "orphan")
        orphan.disposition, orphan.reason = Disposition.REFUSED, "no_turn"
        session.add(orphan)
    world.tell(make_outcome("reverted", "late", "ep-1", received_at=world.hands(), occurred_at=world.hands()))
    before = world.books()
    assert before == (2, 1, 0, {"no_turn": 1})
    assert world.sweep(days=11)["strays"] == 1 and world.books() == before


def test_an_event_whose_row_went_is_a_repeat_when_it_comes_again(world):
    told = episode("ep-1", world.hands)
    world.tell(*told)
    world.sweep(days=11)
    before = world.books()
    world.tell(*told[1:])
    assert world.books() == before and world.rows(OutcomeRow) == [0]
    with reading(world.engine) as session:
        counters = {one.name: one.count for one in read_accounting(session, "tab").counters}
    assert counters["repeated_events"] == 2


def test_recorded_traffic_of_long_ago_is_kept_as_long_as_any_other(world):
    turn, accepted, closed = episode("ep-1", world.hands)
    world.hands.forward(1000 * 86_400)
    now = {"received_at": world.hands()}
    world.tell(turn, accepted.model_copy(update=now), closed.model_copy(update=now))
    world.reward("ep-1", SampleState.READY)
    assert world.sweep(days=9) == {}
    assert world.sweep(days=2) == {"raw": 3}


def test_a_turn_in_an_episode_of_long_ago_makes_the_next_revision(world):
    world.tell(*episode("ep-1", world.hands))
    world.sweep(days=12)
    world.tell(make_turn("ep-1", n="2-0", started_at=world.hands()))
    with reading(world.engine) as session:
        assert sorted(row.revision for row in session.exec(select(RevisionRow)).all()) == [1, 2]


def test_refusals_go_and_are_taken_back_when_the_event_comes_mended(world):
    told = [refusal("r1", world.hands), refusal("", world.hands, event="e1", reason="unknown_kind")]
    world.tell(*told, refusal("r2", world.hands, policy=None))
    assert world.books()[3] == {"bad_field": 1, "unknown_kind": 1}
    assert world.sweep(days=5) == {"refusals": 3}
    assert world.books()[3] == {"bad_field": 1, "unknown_kind": 1}
    world.tell(*told)
    assert world.rows(RefusalRow) == [0], "the same refusals again"
    turn, _, closed = episode("ep-1", world.hands)
    world.tell(turn, closed, make_outcome("accepted", "e1", "ep-1", occurred_at=world.hands(), received_at=world.hands()))
    assert world.books() == (2, 0, 0, {"bad_field": 1})
    world.sweep(days=11)
    assert world.books() == (2, 0, 0, {"bad_field": 1})


def test_a_refusal_that_was_mended_before_it_went_is_not_counted_again(world):
    world.tell(refusal("", world.hands, event="e1"), *episode("ep-1", world.hands))
    world.tell(make_outcome("accepted", "e1", "ep-1", occurred_at=world.hands(), received_at=world.hands()))
    assert world.books() == (3, 0, 0, {})
    assert world.sweep(days=5) == {"refusals": 1} and world.books() == (3, 0, 0, {})
    world.sweep(days=11)
    assert world.books() == (3, 0, 0, {})


def test_dead_letters_and_payloads_go(world):
    letter = DeadLetter(topic="turns", partition=0, offset=1, key=None, reason="r", detail="d", value=b"x", at=world.hands())
    world.log.append(dead_letter("turns"), [Entry(None, letter.encode())])
    world.log.append("turns", [Entry("ep", make_turn("ep", text="x" * 300_000).encode())])
    world.hands.now = datetime.now(UTC)  # the log and the folder have a clock of their own
    assert world.sweep(days=2.9) == {}
    assert world.sweep(days=0.2) == {"dead letters": 1}
    assert world.sweep(days=5) == {} and world.sweep(days=1) == {"payloads": 1}


def test_what_a_dead_process_left_in_a_spool_is_counted_before_it_goes(world):
    folder = world.settings.home / "spool"
    turns, outcomes = Spool(folder, "dead-1", TURNS.name), Spool(folder, "dead-1", OUTCOMES.name)
    turns.add([Entry("ep", make_turn("ep").encode())])
    outcomes.add([Entry("ep", make_outcome("accepted", "e1", "ep").encode())])
    turns.close()
    old = to_ms(world.hands()) / 1000
    for file in folder.iterdir():
        os.utime(file, (old, old))
    assert world.sweep(days=1) == {}
    assert world.sweep(days=1.1) == {"spooled": 1}, "the other one is still in somebody's hands"
    outcomes.close()
    assert world.sweep() == {"spooled": 1} and world.books()[3] == {"spool_expired": 1}
    assert not list(folder.iterdir())


def test_a_policy_without_a_file_goes_by_the_shortest_time(world):
    world.tell(*episode("ep-1", world.hands))
    for table in (TurnRow, OutcomeRow, EpisodeRow):
        with writing(world.engine) as session:
            for row in session.exec(select(table)).all():
                row.policy = "former"
                session.add(row)
    assert world.sweep(days=9) == {} and world.sweep(days=2) == {"raw": 3}


def test_a_stopped_sweep_ends_between_two_transactions_and_the_next_goes_on(world):
    for n in range(4):
        world.tell(*episode(f"ep-{n}", world.hands))
    before = world.books()
    world.hands.forward(11 * 86_400)
    stop = threading.Event()
    stop.set()
    where = deletion.places(world.settings, world.engine, world.log)
    assert Sweeper([world.policy], where, world.hands, 2, stop).sweep() == {}
    assert world.sweep() == {"raw": 12} and world.books() == before


class Kill(Exception):
    pass


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kills=st.lists(st.integers(1, 9), min_size=1, max_size=4), batch=st.integers(1, 3))
def test_killed_in_any_transaction_nothing_is_lost_or_counted_twice(tmp_path_factory, tab_policy, kills: list[int], batch: int):
    world = World(tmp_path_factory.mktemp("home"), tab_policy)
    for n in range(4):
        world.tell(*episode(f"ep-{n}", world.hands), refusal(f"r{n}", world.hands))
        world.reward(f"ep-{n}", SampleState.READY)
    before, real = world.books(), sweeping.count_all
    world.hands.forward(50 * 86_400)
    for at in kills:
        done = 0

        def counting(session, tally):
            nonlocal done
            real(session, tally)
            done += 1
            if done == at:  # noqa: B023
                raise Kill

        sweeping.count_all = counting
        try:
            world.sweep(batch=batch)
        except Kill:
            pass
        finally:
            sweeping.count_all = real
        assert world.books() == before
    world.sweep(batch=batch)
    assert world.books() == before and sum(world.rows(TurnRow, OutcomeRow, RevisionRow, RewardRow, SampleRow, EpisodeRow)) == 0
    world.log.close()
    world.engine.dispose()
