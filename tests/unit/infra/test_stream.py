"""The stream loop: effects exactly once, whatever dies; a zombie writes nothing; poison is buried."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.dead_letter import DeadLetter
from contracts.episode import EpisodeClosed
from contracts.errors import Retry
from contracts.topics import EPISODES, grave
from infra.db.counters import count
from infra.db.engine import open_db, reading, writing
from infra.db.query import Engine, Session, select
from infra.db.tables.stream import CounterRow, OffsetRow
from infra.eventlog.embedded import EmbeddedLog
from infra.eventlog.open import open_log_at
from infra.eventlog.port import Entry, EventLog, Message, OnAssigned, Partition
from infra.stream import Delivery, Stream


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database; making its tables takes longer than most of these tests."""
    file = tmp_path_factory.mktemp("blank") / "db"
    open_db(f"sqlite:///{file}").dispose()
    return file


def copied(blank: Path, folder: Path) -> Engine:
    return open_db(f"sqlite:///{shutil.copy(blank, folder)}")


@pytest.fixture
def engine(blank: Path, tmp_path: Path) -> Engine:
    return copied(blank, tmp_path)


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    log = EmbeddedLog(tmp_path / "log.db")
    log.ensure([EPISODES])
    return log


def put(log: EventLog, *numbers: int) -> None:
    records = [EpisodeClosed(episode_id=f"ep-{n}", policy="tab", revision=1) for n in numbers]
    log.append(EPISODES.name, [Entry(record.episode_id, record.encode()) for record in records])


def tally(session: Session, deliveries: Sequence[Delivery]) -> None:
    for delivery in deliveries:
        assert isinstance(delivery.record, EpisodeClosed)
        count(session, "tab", delivery.record.episode_id)


def counted(engine: Engine) -> dict[str, int]:
    with reading(engine) as session:
        return {row.name: row.count for row in session.exec(select(CounterRow)).all()}


class Death(BaseException):
    """What a kill looks like from inside."""


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deaths=st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=6))
def test_each_record_has_its_effect_once_however_often_the_reader_dies(blank, tmp_path_factory, deaths):
    folder = tmp_path_factory.mktemp("s")
    engine, log = copied(blank, folder), EmbeddedLog(folder / "log.db")
    log.ensure([EPISODES])
    put(log, *range(30))
    for most, in_time in deaths:

        def dying(session: Session, deliveries: Sequence[Delivery], in_time: bool = in_time) -> None:
            tally(session, deliveries)
            if in_time:
                raise Death

        stream = Stream(engine, log, "g", [EPISODES], dying)
        try:
            stream.step(0.2, most)
        except Death:
            pass
        stream.close()
    stream = Stream(engine, log, "g", [EPISODES], tally)
    while stream.step(0.2):
        pass
    stream.close()
    assert counted(engine) == {f"ep-{n}": 1 for n in range(30)}


def test_a_zombie_writes_nothing_and_goes_on_where_the_other_was(engine, log, tmp_path):
    put(log, 1)
    zombie = Stream(engine, log, "g", [EPISODES], tally)
    while not zombie.step(0.2):
        pass
    usurper = Stream(engine, EmbeddedLog(tmp_path / "log.db"), "g", [EPISODES], tally)
    put(log, 2, 3, 4, 5, 6, 7, 8, 9)
    done = 0
    for _ in range(60):
        done += usurper.step(0.05) + zombie.step(0.05)
        if sum(counted(engine).values()) == 9:
            break
    assert counted(engine) == {f"ep-{n}": 1 for n in range(1, 10)}
    usurper.close()
    zombie.close()


def test_a_batch_comes_again_after_the_database_was_away(engine, log):
    put(log, 1, 2, 3)
    away = [True]

    def sometimes(session: Session, deliveries: Sequence[Delivery]) -> None:
        if away and away.pop():
            raise Retry("the database is away")
        tally(session, deliveries)

    stream = Stream(engine, log, "g", [EPISODES], sometimes)
    with pytest.raises(Retry):
        while True:
            stream.step(0.2)
    while stream.step(0.2):
        pass
    stream.close()
    assert counted(engine) == {"ep-1": 1, "ep-2": 1, "ep-3": 1}


def test_run_stops_when_told_and_ticks_meanwhile(engine, log):
    stop, ticks = threading.Event(), []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 3:
            stop.set()

    put(log, 1)
    Stream(engine, log, "g", [EPISODES], tally).run(stop, every_s=0.01, tick=tick)
    assert len(ticks) == 3 and counted(engine) == {"ep-1": 1}


def test_the_watermark_is_now_when_nothing_is_unread_and_else_the_last_applied_message(engine, log):
    put(log, *range(40))
    stream = Stream(engine, log, "g", [EPISODES], tally)
    while not stream.step(0.2, most=1):
        assert set(stream.watermark_ms(10**15).values()) <= {0}
    seen = set(stream.watermark_ms(10**15).values())
    assert 0 in seen and 10**15 not in seen and len(seen) == 2
    while stream.step(0.2):
        pass
    assert stream.watermark_ms(10**15) == dict.fromkeys(log.ends(EPISODES.name), 10**15)
    put(log, *range(40, 80))
    assert 10**15 not in stream.watermark_ms(10**15).values()
    stream.close()


def test_the_watermark_passes_what_retention_took(engine, log):
    put(log, 1, 2, 3)
    log.trim(now_s=10**10)
    stream = Stream(engine, log, "g", [EPISODES], tally)
    assert stream.step(0.3) == 0
    assert set(stream.watermark_ms(10**15).values()) == {10**15}
    stream.close()


class TwoMembers:
    """A log whose two members are each told by the test what they hold: who is told late is a zombie."""

    def __init__(self, log: EmbeddedLog) -> None:
        self.log = log
        self.members: list[Member] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def consumer(self, group: str, topics: Sequence[str], on_assigned: OnAssigned) -> Member:
        self.members.append(Member(self.log, on_assigned))
        return self.members[-1]


class Member:
    """Reads what it was assigned; `told` is what it will be at its next poll."""

    def __init__(self, log: EmbeddedLog, on_assigned: OnAssigned) -> None:
        self._log = log
        self._on_assigned = on_assigned
        self._positions: dict[Partition, int] = {}
        self.told: frozenset[Partition] = frozenset()

    def poll(self, timeout_s: float, most: int = 500) -> list[Message]:
        for lost in self._positions.keys() - self.told:
            del self._positions[lost]
        if gained := self.told - self._positions.keys():
            self._positions.update(self._on_assigned(frozenset(gained)))
        found = [m for m in self._log.scan(EPISODES.name, self._positions) if m.place in self._positions]
        taken = sorted(found, key=lambda message: message.offset)[:most]
        self._positions.update({message.place: message.offset + 1 for message in taken})
        return taken

    def assignment(self) -> frozenset[Partition]:
        return frozenset(self._positions)

    def positions(self) -> dict[Partition, int]:
        return dict(self._positions)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        pass

    def renew(self, places: frozenset[Partition]) -> None:
        for place in places:
            self._positions.pop(place, None)

    def close(self) -> None:
        pass


ALL_PLACES = frozenset(Partition(EPISODES.name, number) for number in range(EPISODES.partitions))


HELD = st.sampled_from([ALL_PLACES, frozenset(sorted(ALL_PLACES)[:2]), frozenset(sorted(ALL_PLACES)[2:]), frozenset()])
WHO = st.integers(0, 1)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    script=st.lists(
        st.one_of(
            st.tuples(st.just("told"), WHO, HELD),
            st.tuples(st.sampled_from(["works", "works", "dies in its work"]), WHO, st.integers(1, 7)),
            st.tuples(st.just("appended"), WHO, st.integers(1, 7)),
        ),
        min_size=5,
        max_size=25,
    )
)
def test_whatever_two_members_believe_to_hold_each_record_has_its_effect_once(blank, tmp_path_factory, script):
    folder = tmp_path_factory.mktemp("s")
    engine, log = copied(blank, folder), EmbeddedLog(folder / "log.db")
    log.ensure([EPISODES])
    dying = [False]

    def effect(session: Session, deliveries: Sequence[Delivery]) -> None:
        tally(session, deliveries)
        if dying[0]:
            raise Death

    both = TwoMembers(log)
    streams = [Stream(engine, both, "g", [EPISODES], effect) for _ in range(2)]
    put(log, *range(20))
    written = 20
    both.members[0].told = both.members[1].told = ALL_PLACES
    for what, who, value in script:
        if what == "told":
            both.members[who].told = value
        elif what == "appended":
            put(log, *range(written, written + value))
            written += value
        else:
            dying[0] = what == "dies in its work"
            try:
                streams[who].step(0, most=value)
            except Death:
                streams[who] = Stream(engine, both, "g", [EPISODES], effect)
                both.members[who] = both.members.pop()
    dying[0] = False
    both.members[0].told, both.members[1].told = ALL_PLACES, frozenset()
    for _ in range(3):
        streams[0].step(0)
        streams[1].step(0)
    assert counted(engine) == {f"ep-{n}": 1 for n in range(written)}
    for stream in streams:
        stream.close()


@pytest.mark.parametrize("new_one_wrote", [True, False])
def test_an_old_owner_that_wakes_up_writes_nothing(engine, log, new_one_wrote):
    """Asleep between poll and write: what it has is still unwritten where the new owner has only looked."""
    both = TwoMembers(log)
    put(log, *range(20))
    sleeping: list[Callable[[], object]] = []
    old = Stream(engine, both, "g", [EPISODES], tally)
    new = Stream(engine, both, "g", [EPISODES], tally)
    both.members[0].told = ALL_PLACES
    old.step(0, most=5)
    read = both.members[0].poll

    def reads_and_sleeps(timeout_s: float, most: int = 500) -> list[Message]:
        found = read(timeout_s, most)
        for wake in sleeping:
            wake()
        sleeping.clear()
        return found

    def taken_over() -> None:
        both.members[1].told = ALL_PLACES
        if new_one_wrote:
            assert new.step(0, most=3) == 3
        else:
            new._consumer.poll(0, most=3)  # it is assigned and has read, no more

    both.members[0].poll = reads_and_sleeps
    sleeping.append(taken_over)
    before = counted(engine)
    assert old.step(0, most=10) == 0
    assert sum(counted(engine).values()) == sum(before.values()) + (3 if new_one_wrote else 0)
    both.members[0].told = frozenset()
    both.members[1].told = ALL_PLACES
    if not new_one_wrote:
        both.members[1].renew(ALL_PLACES)  # its unwritten batch was only looked at by this test
    for _ in range(3):
        old.step(0)
        new.step(0)
    assert counted(engine) == {f"ep-{n}": 1 for n in range(20)}


def test_each_assignment_raises_the_generation_of_its_partitions_alone(engine, log):
    both = TwoMembers(log)
    stream = Stream(engine, both, "g", [EPISODES], tally)
    first, second = sorted(ALL_PLACES)[:2]
    for told in ([first], [first, second], [second], [first, second]):
        both.members[0].told = frozenset(told)
        stream.step(0)
    with reading(engine) as session:
        rows = {row.partition_number: row.generation for row in session.exec(select(OffsetRow)).all()}
    assert rows == {first.number: 2, second.number: 1}


def test_a_place_beyond_the_end_goes_back_to_the_beginning(engine, log, caplog):
    """The log lost its last moments in a power cut; the database did not. What comes then lies at places already passed."""
    put(log, 1, 2, 3)
    with writing(engine) as session:
        for _, number in ALL_PLACES:
            row = OffsetRow(consumer_group="g", topic=EPISODES.name, partition_number=number, next_offset=1_000)
            session.add(row)
    stream = Stream(engine, log, "g", [EPISODES], tally)
    while stream.step(0.3):
        pass
    stream.close()
    assert counted(engine) == {"ep-1": 1, "ep-2": 1, "ep-3": 1}
    assert caplog.text.count("the log was replaced or lost its end") == len(ALL_PLACES)


def test_a_message_at_fault_is_buried_and_its_neighbours_are_read(engine, tmp_path):
    log = open_log_at(f"sqlite:///{tmp_path / 'log.db'}", tmp_path / "payloads")
    log.ensure([EPISODES])
    put(log, 1, 2)
    log.append(EPISODES.name, [Entry("ep-3", b"{" + b" " * 300_000)])
    next((tmp_path / "payloads").glob("*/*")).unlink()
    put(log, 4)
    stream = Stream(engine, log, "g", [EPISODES], tally)
    while stream.step(0.3):
        pass
    stream.close()
    assert counted(engine) == {"ep-1": 1, "ep-2": 1, "ep-4": 1}
    (letter,) = [DeadLetter.decode(message.value) for message in log.scan(grave(EPISODES).name)]
    assert (letter.reason, letter.key) == ("payload_missing", "ep-3")
