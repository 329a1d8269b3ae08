"""The joiner's process as a whole, on a real log: it may die anywhere, be joined by another, or come back after a long absence."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.record import Record
from contracts.states import Disposition
from contracts.topics import EPISODES, OUTCOMES, REFUSALS, TURNS
from infra.clock import to_ms
from infra.db.query import Engine, Session
from infra.eventlog.embedded import EmbeddedLog, partition_of
from infra.eventlog.port import Entry, Partition
from infra.stream import Delivery, Stream
from ingest.join.joiner import GROUP, Joiner
from tests.conftest import EPOCH, Hands, make_outcome, make_turn
from tests.unit.ingest.join_world import expected, fresh_db, read_books

TOPICS = (TURNS, OUTCOMES, REFUSALS)


class Death(BaseException):
    """What a kill looks like from inside."""


class FrailConsumer:
    """A consumer of the real log whose process dies when it is about to tell the log what its database knows already."""

    def __init__(self, consumer: Any, dies: list[str]) -> None:
        self._consumer = consumer
        self._dies = dies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        if "between database and log" in self._dies:
            raise Death
        self._consumer.commit(offsets)


class FrailLog:
    def __init__(self, log: EmbeddedLog, dies: list[str]) -> None:
        self._log = log
        self._dies = dies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, topic: str, entries: Sequence[Entry]) -> None:
        if "before it publishes" in self._dies:
            raise Death
        self._log.append(topic, entries)

    def consumer(self, *asked: Any) -> FrailConsumer:
        return FrailConsumer(self._log.consumer(*asked), self._dies)


class Member:
    """One joiner's process: its own log, its own stream, nothing else in memory."""

    def __init__(self, engine: Engine, file: Path, policies: Any, hands: Hands, missed_after_s: float = 0.3) -> None:
        self._made = (engine, file, policies, hands)
        self._missed_after_s = missed_after_s
        self.dies: list[str] = []
        self.start()

    def start(self) -> None:
        engine, file, policies, hands = self._made
        self._engine, self._hands = engine, hands
        self._joiner = Joiner(policies, hands)
        self.dies.clear()
        self._log = EmbeddedLog(file, session_timeout_s=self._missed_after_s, clock=hands)
        self._stream = Stream(engine, FrailLog(self._log, self.dies), GROUP, TOPICS, self._apply)  # type: ignore[arg-type]

    def _apply(self, session: Session, deliveries: Sequence[Delivery]) -> None:
        self._joiner.apply(session, deliveries)
        if "before the database commits" in self.dies:
            raise Death

    def step(self, most: int = 500) -> int:
        return self._stream.step(0.02, most)

    def tick(self) -> int:
        now_ms = to_ms(self._hands())
        return self._joiner.close_quiet(self._engine, self._stream.watermark_ms(now_ms))

    def watermarks(self) -> dict[Partition, int]:
        return self._stream.watermark_ms(to_ms(self._hands()))

    def step_and_die(self, how: str, most: int, quietly: bool) -> None:
        """Killed, or stopped; a killed one is missed by its group only after a while."""
        self.dies.append(how)
        try:
            self.step(most)
        except Death:
            pass
        self.stop(quietly)
        self.start()

    def stop(self, quietly: bool = True) -> None:
        if quietly:
            self._stream.close()
        self._log.close()


def put(log: EmbeddedLog, *records: Record) -> None:
    for record in records:
        topic = TURNS if hasattr(record, "prompt_ids") else OUTCOMES
        log.append(topic.name, [Entry(str(record.episode_id), record.encode())])


def drain(members: Sequence[Member]) -> None:
    """Until nothing lies unread anywhere."""
    idle = 0
    while idle < 3:
        read = sum(member.step() for member in members)
        held = {place for member in members for place in member.watermarks()}
        idle = idle + 1 if read == 0 and len(held) >= sum(t.partitions for t in TOPICS) else 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("restarts")


DEATHS = ("before the database commits", "between database and log", "before it publishes", "between two batches")


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dice=st.randoms(use_true_random=False),
    deaths=st.lists(
        st.tuples(st.sampled_from(DEATHS), st.integers(1, 9), st.integers(0, 1), st.booleans()), min_size=2, max_size=5
    ),
)
def test_two_joiners_that_die_anywhere_make_the_same_episodes_as_one_that_lives(
    tmp_path_factory, folder, tab_policy, dice: random.Random, deaths
):
    hands = Hands()
    engine, file = fresh_db(folder), tmp_path_factory.mktemp("log") / "log.db"
    log = EmbeddedLog(file, clock=hands)
    log.ensure([*TOPICS, EPISODES])
    turns = [make_turn(f"ep-{n}", f"1-{m}", at_s=m) for n in range(8) for m in range(2)]
    tellings = [
        make_outcome(kind, f"ep-{n}-{kind}", f"ep-{n}", at_s=2 + at)
        for n in range(8)
        for at, kind in enumerate(("shown", "accepted", "persisted", *(("closed",) if n % 2 else ())))
    ]
    told = [*turns, *tellings, *dice.sample(tellings, 6)]
    dice.shuffle(told)
    put(log, *told)
    members = [Member(engine, file, {"tab": tab_policy}, hands) for _ in range(2)]
    for how, most, who, quietly in deaths:
        members[1 - who].step(most)
        members[who].step_and_die(how, most, quietly)
    hands.forward(60)
    drain(members)
    while sum(member.tick() for member in members):
        pass
    found, wanted = read_books(engine), expected(tab_policy, turns, tellings)
    assert (found.episodes, found.fates) == (wanted.episodes, wanted.fates)
    assert found.counters == {"repeated_events": 6}
    for member in members:
        member.stop()
    log.close()


def test_a_joiner_that_catches_up_closes_nothing_whose_news_lies_unread(tmp_path, folder, tab_policy):
    """It was away for an hour. Everything it reads is long over; only the log knows that more is to come."""
    hands = Hands()
    engine, file = fresh_db(folder), tmp_path / "log.db"
    log = EmbeddedLog(file, clock=hands)
    log.ensure([*TOPICS, EPISODES])
    names = [name for name in (f"ep-{n}" for n in range(100)) if partition_of(name, TURNS.partitions) == 0][:4]
    for second in range(0, 40, 4):  # someone is busy in each episode for 40 s, never quiet for the 8 s of the policy
        hands.now = EPOCH + timedelta(seconds=second)
        if second == 0:
            put(log, *(make_turn(name) for name in names))
        put(log, *(make_outcome("shown", f"{name}-{second}", name, at_s=second) for name in names))
    hands.forward(3600)
    member = Member(engine, file, {"tab": tab_policy}, hands)
    closed = 0
    while not member.step(most=4):
        pass
    for _ in range(9):
        closed += member.tick()
        member.step(most=4)
    assert closed == 0 and len(read_books(engine).episodes) == 0
    drain([member])
    assert member.tick() == 4
    assert all(episode.revision == 1 and len(episode.outcomes) == 10 for episode in read_books(engine).episodes.values())
    member.stop()
    log.close()


def test_each_joiner_closes_only_what_it_reads_itself(tmp_path, folder, tab_policy):
    hands = Hands()
    engine, file = fresh_db(folder), tmp_path / "log.db"
    log = EmbeddedLog(file, clock=hands)
    log.ensure([*TOPICS, EPISODES])
    names = [f"ep-{n}" for n in range(20)]
    put(log, *(make_turn(name) for name in names))
    members = [Member(engine, file, {"tab": tab_policy}, hands, missed_after_s=30) for _ in range(2)]
    drain(members)
    held = [{place.number for place in member.watermarks() if place.topic == TURNS.name} for member in members]
    assert held[0] and held[1] and not held[0] & held[1]
    hands.forward(60)
    for member, numbers in zip(members, held, strict=True):
        assert member.tick() == sum(partition_of(name, TURNS.partitions) in numbers for name in names)
    assert len(read_books(engine).episodes) == 20
    for member in members:
        member.stop()
    log.close()


def test_an_orphan_is_not_refused_while_its_turn_may_lie_unread(tmp_path, folder, tab_policy):
    """The joiner was away for longer than any window; what it reads first looks like an orphan and is none."""
    hands = Hands()
    engine, file = fresh_db(folder), tmp_path / "log.db"
    log = EmbeddedLog(file, clock=hands)
    log.ensure([*TOPICS, EPISODES])
    lane = partition_of("ep-1", TURNS.partitions)
    others = [name for name in (f"ep-1{n}" for n in range(500)) if partition_of(name, TURNS.partitions) == lane][:6]
    put(log, make_outcome("accepted", "e1", at_s=0), *(make_turn(name) for name in others))
    hands.forward(3)
    put(log, make_turn())
    hands.forward(7200)
    member = Member(engine, file, {"tab": tab_policy}, hands)
    seen = []
    while len(seen) < 40 and Disposition.JOINED not in seen:
        member.step(most=1)
        member.tick()
        seen += [fate for fate, _ in read_books(engine).fates.values()]
    assert Disposition.JOINED in seen and Disposition.REFUSED not in seen
    put(log, make_outcome("accepted", "e2", "ep-nobody"))
    drain([member])
    member.tick()
    assert read_books(engine).fates["e2"] == (Disposition.REFUSED, "no_turn")
    member.stop()
    log.close()
