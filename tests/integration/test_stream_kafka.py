"""Streams on a real Kafka: effects exactly once while members are slow, come, go, die and wake up again."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from contracts.dead_letter import DeadLetter
from contracts.outcome import Refusal
from contracts.topics import Topic, grave
from infra.db.engine import open_db, reading
from infra.db.query import Engine, select
from infra.db.tables.stream import CounterRow
from infra.eventlog.open import open_log
from infra.eventlog.port import Entry, EventLog, Partition
from infra.settings import Settings
from infra.stream import Stream
from tests.contract.eventlog_acts import new_group, new_topic, numbered, places, until
from tests.integration.conftest import Kafka
from tests.integration.stream_member import stream_member, tally
from tests.integration.tansu import Tansu

pytestmark = pytest.mark.integration

PATIENCE_S = 120.0


@pytest.fixture
def url(kafka: Kafka | Tansu) -> str:
    if isinstance(kafka, Tansu):
        pytest.skip("Tansu takes 23 seconds for each change of a group: of these tests it runs the log's contract only")
    return f"kafka://{kafka.bootstrap}"


@pytest.fixture
def settings(url: str, tmp_path: Path) -> Settings:
    return Settings(log_url=url, db_url=f"sqlite:///{tmp_path / 'db'}", artifacts=tmp_path / "artifacts")


@pytest.fixture
def log(settings: Settings) -> Iterator[EventLog]:
    log = open_log(settings)
    yield log
    log.close()


@pytest.fixture
def topic(log: EventLog) -> Topic:
    topic = new_topic()
    log.ensure([topic])
    return topic


@pytest.fixture
def engine(settings: Settings) -> Engine:
    return open_db(settings.database)


def put(log: EventLog, topic: Topic, start: int, count: int) -> None:
    now = datetime.now(UTC)
    records = [
        Refusal(refusal_id=f"r-{n}", event_id=None, policy=None, reason="test", detail="", received_at=now)
        for n in range(start, start + count)
    ]
    log.append(topic.name, [Entry(record.refusal_id, record.encode()) for record in records])


def counted(engine: Engine, group: str) -> Counter[str]:
    with reading(engine) as session:
        rows = session.exec(select(CounterRow).where(CounterRow.policy == group)).all()
    return Counter({row.name: row.count for row in rows})


def a_moment() -> None:
    time.sleep(0.2)


def each_once(engine: Engine, group: str, total: int, step: Callable[[], object] = a_moment) -> None:
    """Wait until all are counted, then a little longer, in case one comes twice."""
    deadline = time.monotonic() + PATIENCE_S
    while counted(engine, group).total() < total:
        assert time.monotonic() < deadline, f"{total - counted(engine, group).total()} were never counted"
        step()
    for _ in range(5):
        step()
    assert counted(engine, group) == {f"r-{n}": 1 for n in range(total)}


def test_three_slow_members_that_join_one_by_one_count_each_record_once(settings, log, topic, engine):
    group, stop = new_group(), threading.Event()
    failures: list[Exception] = []

    def member() -> None:
        own = open_log(settings)
        try:
            Stream(open_db(settings.database), own, group, [topic], partial(tally, group, 0.15)).run(stop, every_s=0.2)
        except Exception as error:
            failures.append(error)
        finally:
            own.close()

    members = [threading.Thread(target=member) for _ in range(3)]
    for number, each in enumerate(members):
        each.start()
        put(log, topic, 200 * number, 200)
        time.sleep(1.0)
    each_once(engine, group, 600)
    stop.set()
    for each in members:
        each.join()
    assert failures == []


def test_what_a_killed_member_had_in_hand_is_done_by_another(url, settings, log, topic, engine):
    group = new_group()
    put(log, topic, 0, 120)
    with stream_member(url, settings.database, group, topic, slow_s=30.0) as member:
        member.wait_for("works")
        member.kill()
    survivor = Stream(engine, log, group, [topic], partial(tally, group, 0.0))
    each_once(engine, group, 120, partial(survivor.step, 0.2))
    survivor.close()


@pytest.mark.parametrize("asleep_in", ["works", "done"])
def test_a_member_that_wakes_up_after_it_was_replaced_counts_nothing_twice(url, settings, log, topic, engine, asleep_in):
    """In its transaction it holds the lock of SQLite, as it would hold rows of PostgreSQL: there it sleeps only briefly."""
    group = new_group()
    put(log, topic, 0, 200)
    with ExitStack() as stack:
        member = stack.enter_context(stream_member(url, settings.database, group, topic, slow_s=0.2))
        member.wait_for(asleep_in)
        member.sleep()
        waking = threading.Timer(8.0, member.wake)
        waking.start()
        other = Stream(engine, log, group, [topic], partial(tally, group, 0.02))
        put(log, topic, 200, 200)
        each_once(engine, group, 400, partial(other.step, 0.2, 20))
        waking.join()
        put(log, topic, 400, 100)
        each_once(engine, group, 500, partial(other.step, 0.2, 20))
        other.close()


def test_partitions_that_stay_go_on_while_the_group_waits_for_a_slow_member(log):
    topic, twin, group = new_topic(), new_topic(), new_group()
    log.ensure([topic, twin])
    asked: list[frozenset[Partition]] = []

    def on_assigned(assigned: frozenset[Partition]) -> dict[Partition, int]:
        asked.append(assigned)
        return dict.fromkeys(assigned, 0)

    one = log.consumer(group, [topic.name, twin.name], on_assigned)
    slow = log.consumer(group, [topic.name, twin.name])
    until(lambda read: len(one.assignment()) == len(slow.assignment()) == 4, [one, slow])
    stays, asked[:] = one.assignment(), []
    assert {place.number for place in stays}.isdisjoint(place.number for place in slow.assignment())
    third = log.consumer(group, [topic.name, twin.name])
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            third.poll(0.05)

    joining = threading.Thread(target=poll)
    joining.start()
    time.sleep(2.0)  # the group is told to regroup, and waits for the slow one, which does not poll
    began, gaps = time.monotonic(), []
    for n in range(20):
        log.append(topic.name, numbered(40, keys=40, start=40 * n))
        sent = time.monotonic()
        while not one.poll(0.05):
            assert time.monotonic() - began < 20, "its partitions stood still"
        gaps.append(time.monotonic() - sent)
    assert max(gaps) < 5.0 and asked == []
    until(lambda read: len(one.assignment()) + len(slow.assignment()) + len(third.assignment()) == 8, [one, slow])
    until(lambda read: len(third.assignment()) == 2, [one, slow])
    assert one.assignment() <= stays and asked == []
    assert one.assignment() | slow.assignment() | third.assignment() == places(topic) | places(twin)
    for each in (one, slow, third):
        assert len({place.number for place in each.assignment()}) * 2 == len(each.assignment())
    stop.set()
    joining.join()
    for each in (one, slow, third):
        each.close()


def test_what_cannot_be_read_is_buried_with_its_place_and_the_next_one_is_read(log, topic, engine):
    group = new_group()
    put(log, topic, 0, 5)
    log.append(topic.name, [Entry("bad", b"\xff{"), *numbered(3, keys=2)])
    put(log, topic, 5, 5)
    bad = {(m.partition, m.offset): m for m in log.scan(topic.name) if not m.value.startswith(b'{"refusal_id"')}
    assert len(bad) == 4
    stream = Stream(engine, log, group, [topic], partial(tally, group, 0.0))
    each_once(engine, group, 10, partial(stream.step, 0.2))
    stream.close()
    letters = [DeadLetter.decode(message.value) for message in log.scan(grave(topic).name)]
    assert {(letter.partition, letter.offset): (letter.key, letter.value) for letter in letters} == {
        place: (message.key, message.value) for place, message in bad.items()
    }


def test_a_record_of_another_producer_and_one_that_only_looks_packed(kafka, log, topic, engine):
    from kafka import KafkaProducer

    group = new_group()
    put(log, topic, 0, 5)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    record = Refusal(refusal_id="r-5", event_id=None, policy=None, reason="test", detail="", received_at=datetime.now(UTC))
    producer.send(topic.name, record.encode(), b"r-5")
    producer.send(topic.name, b"\x00\x09nonsense", headers=[("slipstream-pack", b"1")])
    producer.close()
    placed = {message.key: message.partition for message in log.scan(topic.name)}
    put(log, topic, 5, 1)
    again = [message.partition for message in log.scan(topic.name) if message.key == "r-5"]
    assert again == [placed["r-5"]] * 2, "a key lies where every Kafka client puts it"
    stream = Stream(engine, log, group, [topic], partial(tally, group, 0.0))
    deadline = time.monotonic() + PATIENCE_S
    while counted(engine, group).total() < 7:
        assert time.monotonic() < deadline
        stream.step(0.2)
    stream.close()
    (letter,) = [DeadLetter.decode(message.value) for message in log.scan(grave(topic).name)]
    assert (letter.reason, letter.value) == ("broken_pack", b"\x00\x09nonsense")


def test_the_watermark_is_the_time_of_the_call_once_all_is_read(log, topic, engine):
    group = new_group()
    put(log, topic, 0, 50)
    stream = Stream(engine, log, group, [topic], partial(tally, group, 0.0))
    while not stream.step(0.2, most=3):
        pass
    some = stream.watermark_ms(10**15)
    assert set(some) == places(topic) and any(value < 10**15 for value in some.values())
    each_once(engine, group, 50, partial(stream.step, 0.2, 3))
    assert stream.watermark_ms(10**15) == dict.fromkeys(places(topic), 10**15)
    stream.close()
