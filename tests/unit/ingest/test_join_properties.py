"""What an episode is in the end does not depend on how its parts came.

Anything goes: any order, any cut into batches, events told again with other times, clocks that are years off, batches that are
rolled back and come again, batches that come again although they were written, windows that end too early, two joiners.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.outcome import Outcome
from contracts.policy import Policy
from contracts.record import Record
from contracts.states import Disposition, EpisodeState
from contracts.turn import Turn
from infra.clock import to_ms
from infra.db.engine import writing
from infra.db.query import Engine, select
from infra.db.tables.ingest import EpisodeRow
from ingest.join.joiner import Joiner
from tests.conftest import EPOCH, make_outcome, make_turn
from tests.unit.ingest.join_world import LANES, Books, count_rows, deliver, expected, fresh_db, lane_of, read_books, read_up_to

FAR_MS = to_ms(datetime(2300, 1, 1, tzinfo=UTC))
KINDS = ("shown", "accepted", "rejected", "persisted", "reverted", "closed")
SKEWS = (0.0, 0.0, 0.0, 0.4, -0.4, 5.0, -5.0, 1_209_600.0, -30 * 31_536_000.0, 90 * 31_536_000.0)
"""By how many seconds a client's clock is off: mostly not, sometimes by two weeks, or by decades, either way."""


@dataclass(frozen=True)
class Story:
    """Everything that was sent: `tellings` may tell one event several times."""

    turns: tuple[Turn, ...]
    tellings: tuple[Outcome, ...]

    def records(self) -> list[Record]:
        return [*self.turns, *self.tellings]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    turns, tellings = [], []
    number = 0
    for episode in range(draw(st.integers(1, 3))):
        name = f"ep-{episode}"
        asked = draw(st.integers(0 if episode else 1, 3))
        for n in range(asked):
            at_s = draw(st.sampled_from((0.0, 3.0, 3.0, 20.0)))
            turns.append(make_turn(name, f"1-{n}", at_s, policy="tab", subject=f"person-{draw(st.integers(0, 1))}"))
        for _ in range(draw(st.integers(0, 5))):
            number += 1
            received_s = draw(st.floats(0.0, 60.0).map(lambda s: round(s, 3)))
            about = draw(st.sampled_from((None, "1-0", "1-1", "1-7")))
            kind = draw(st.sampled_from(KINDS))
            for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
                tellings.append(_told(kind, f"e{number}", name, about, received_s, draw(st.sampled_from(SKEWS))))
                received_s = round(received_s + draw(st.sampled_from((0.0, 0.7, 40.0))), 3)
                kind = draw(st.sampled_from((kind, kind, kind, "closed")))
    return Story(tuple(turns), tuple(tellings))


def _told(kind: str, event_id: str, episode_id: str, n: str | None, received_s: float, skew_s: float) -> Outcome:
    received = EPOCH + timedelta(seconds=received_s)
    return make_outcome(kind, event_id, episode_id, n, occurred_at=received + timedelta(seconds=skew_s - 0.1), received_at=received)


class Crash(Exception):
    """The process dies before it commits."""


def tell(engine: Engine, joiner: Joiner, batch: Sequence[Record], lane: int, dies: bool) -> None:
    if dies:
        with pytest.raises(Crash), writing(engine) as session:
            from tests.unit.ingest.join_world import delivery

            joiner.apply(session, [delivery(record, lane) for record in batch])
            raise Crash
    deliver(engine, joiner, *batch, lane=lane)


def end(engine: Engine, joiner: Joiner) -> Books:
    joiner.close_quiet(engine, read_up_to(FAR_MS, range(LANES)))
    assert joiner.close_quiet(engine, read_up_to(FAR_MS, range(LANES))) == 0
    return read_books(engine)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("join")


calm = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@settings(calm, max_examples=15)
@given(story=stories())
def test_told_in_order_by_one_joiner_it_is_what_the_rules_say(folder, tab_policy, hands, story):
    engine, joiner = fresh_db(folder), Joiner({"tab": tab_policy}, hands)
    for record in sorted(story.records(), key=lambda one: getattr(one, "received_at", None) or getattr(one, "started_at", EPOCH)):
        deliver(engine, joiner, record, lane=lane_of(record))
    found, wanted = end(engine, joiner), expected(tab_policy, story.turns, story.tellings)
    assert (found.episodes, found.fates) == (wanted.episodes, wanted.fates)


@calm
@given(story=stories(), dice=st.randoms(use_true_random=False), data=st.data())
def test_the_final_episode_does_not_depend_on_how_it_was_told(folder, tab_policy, hands, story, dice: random.Random, data):
    engine = fresh_db(folder)
    told = story.records()
    told += data.draw(st.lists(st.sampled_from(told), max_size=4), "said twice")
    dice.shuffle(told)
    lanes = [[record for record in told if lane_of(record) == lane] for lane in range(LANES)]
    while any(lanes):
        joiner = Joiner({"tab": tab_policy}, hands)  # a new life between any two batches, and two of them by turns
        lane = dice.choice([number for number, left in enumerate(lanes) if left])
        size = dice.randint(1, len(lanes[lane]))
        batch, lanes[lane] = lanes[lane][:size], lanes[lane][size:]
        tell(engine, joiner, batch, lane, dies=dice.random() < 0.2)
        if dice.random() < 0.15:
            deliver(engine, joiner, *batch, lane=lane)
        if dice.random() < 0.3:
            early_ms = to_ms(EPOCH + timedelta(seconds=dice.randint(0, 100)))
            joiner.close_quiet(engine, read_up_to(early_ms, [dice.randrange(LANES)]))
    found, wanted = end(engine, Joiner({"tab": tab_policy}, hands)), expected(tab_policy, story.turns, story.tellings)
    assert (found.episodes, found.fates) == (wanted.episodes, wanted.fates)
    assert count_rows(engine)[:2] == (len(story.turns), len({one.event_id for one in story.tellings}))


@settings(calm, max_examples=15)
@given(story=stories(), dice=st.randoms(use_true_random=False))
def test_the_books_balance_whatever_is_learned_from_meanwhile(folder, tab_policy, hands, story, dice: random.Random):
    """Each id that was sent is in one place, and what was trained on stays as it was trained on."""
    engine, joiner = fresh_db(folder), Joiner({"tab": tab_policy}, hands)
    told = story.records()
    dice.shuffle(told)
    learned = Books({}, {})
    for number, record in enumerate(told):
        deliver(engine, joiner, record, lane=lane_of(record))
        if number == len(told) // 2:
            consume(engine)
            learned = read_books(engine)
    found = end(engine, joiner)
    closed = {name for name in learned.episodes if is_consumed(engine, name)}
    assert {name: found.episodes[name] for name in closed} == {name: learned.episodes[name] for name in closed}
    counts = {fate: sum(1 for one, _ in found.fates.values() if one == fate) for fate in Disposition}
    assert counts[Disposition.WAITING] == 0
    assert sum(counts.values()) == len({one.event_id for one in story.tellings})
    late = {event for event, (fate, _) in found.fates.items() if fate == Disposition.LATE}
    assert late <= {one.event_id for one in story.tellings if one.episode_id in closed}
    assert found.counters.get("repeated_events", 0) == len(story.tellings) - sum(counts.values())


@settings(calm, max_examples=15)
@given(story=stories(), dice=st.randoms(use_true_random=False))
def test_clocks_that_were_not_believed_are_counted_once_each(folder, tab_policy, hands, story, dice: random.Random):
    """For what names its turn: whether the episode's first turn is known when something comes is a matter of arrival."""
    first = {one.event_id: one for one in reversed(story.tellings) if one.turn_id is not None}
    turns = {turn.turn_id: turn for turn in story.turns}
    told: list[Record] = [*story.turns, *first.values()]
    dice.shuffle(told)
    engine, joiner = fresh_db(folder), Joiner({"tab": tab_policy}, hands)
    for record in told:
        deliver(engine, joiner, record, lane=lane_of(record))
    found = end(engine, joiner)
    joined = [one for one in first.values() if one.turn_id in turns]
    believable = [one for one in joined if (one.occurred_at - one.received_at).total_seconds() <= 1]
    ahead = len(joined) - len(believable)
    behind = sum((turns[str(one.turn_id)].started_at - one.occurred_at).total_seconds() > 1 for one in believable)
    assert (found.counters.get("clocks.ahead", 0), found.counters.get("clocks.behind", 0)) == (ahead, behind)


def consume(engine: Engine) -> None:
    with writing(engine) as session:
        for row in session.exec(select(EpisodeRow).where(EpisodeRow.state == EpisodeState.CLOSED)).all():
            row.state = EpisodeState.CONSUMED
            session.add(row)


def is_consumed(engine: Engine, episode_id: str) -> bool:
    with writing(engine) as session:
        row = session.get(EpisodeRow, episode_id)
        return row is not None and row.state == EpisodeState.CONSUMED


def test_the_windows_are_those_of_the_policy(tab_policy: Policy):
    assert tab_policy.quiet_seconds < 20 < 60, "the stories above need windows that end within them"
