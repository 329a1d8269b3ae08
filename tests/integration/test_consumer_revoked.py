"""A partition that goes to another member while its consumer is busy with it: the client drops it on its own network thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from kafka import TopicPartition

from contracts.topics import Topic
from infra.eventlog.access import KafkaAccess
from infra.eventlog.broker import BrokerLog
from infra.eventlog.broker_consumer import BrokerConsumer
from infra.eventlog.port import Partition
from tests.contract.eventlog_acts import new_group, new_topic, numbered, places, take, until
from tests.integration.conftest import Kafka
from tests.integration.tansu import Tansu

pytestmark = pytest.mark.integration

COUNT = 40


@pytest.fixture
def topic() -> Topic:
    return new_topic(partitions=4)


@pytest.fixture
def log(kafka: Kafka | Tansu, topic: Topic) -> Iterator[BrokerLog]:
    made = BrokerLog(kafka.bootstrap, KafkaAccess())
    made.ensure([topic])
    made.append(topic.name, numbered(COUNT, keys=20))
    yield made
    made.close()


class Group:
    """The client's part when the group moves on: it drops partitions and tells the listener, or adds them again."""

    def __init__(self, consumer: BrokerConsumer, topic: Topic) -> None:
        self._subscription = consumer._consumer._subscription
        self._all = sorted(TopicPartition(*place) for place in places(topic))

    def take_away(self, place: Partition) -> None:
        gone = TopicPartition(*place)
        self._subscription.rebalance_listener.on_partitions_revoked([gone])
        self._subscription.assign_from_subscribed([each for each in self._all if each != gone])

    def give_back(self, place: Partition) -> None:
        self._subscription.assign_from_subscribed(self._all)
        self._subscription.rebalance_listener.on_partitions_assigned([TopicPartition(*place)])


class Starts(dict[Partition, int]):
    """Where to start: and as soon as the consumer asks for a place, that happens which may always happen just then."""

    then: Callable[[Partition], None] | None = None

    def get(self, place: Partition, default: int | None = None) -> int | None:  # type: ignore[override]
        if self.then is not None:
            self.then(place)
        return super().get(place, default)


def test_a_partition_revoked_while_it_starts_harms_nobody_and_starts_when_it_comes_again(log: BrokerLog, topic: Topic) -> None:
    gone: list[Partition] = []
    asked: list[frozenset[Partition]] = []
    starts = Starts()

    def on_assigned(fresh: frozenset[Partition]) -> Mapping[Partition, int]:
        asked.append(fresh)
        return starts

    consumer = log.consumer(new_group(), [topic.name], on_assigned)
    assert isinstance(consumer, BrokerConsumer)
    group = Group(consumer, topic)

    def lose_the_first(place: Partition) -> None:
        if not gone:
            gone.append(place)
            group.take_away(place)

    starts.then = lose_the_first
    until(lambda _: gone, [consumer])
    assert consumer.assignment() == places(topic) - {*gone}
    group.give_back(gone[0])
    read = take(consumer, COUNT)
    assert asked[-1] == {gone[0]} and consumer.assignment() == places(topic)
    assert gone[0] in {message.place for message in read}, "the test needs messages there"
    consumer.close()


def test_positions_are_told_while_partitions_come_and_go(log: BrokerLog, topic: Topic) -> None:
    consumer = log.consumer(new_group(), [topic.name])
    assert isinstance(consumer, BrokerConsumer)
    read = take(consumer, COUNT)
    group, done = Group(consumer, topic), threading.Event()
    lost, *stay = sorted(places(topic))

    def come_and_go() -> None:
        while not done.is_set():
            group.take_away(lost)
            time.sleep(0.0003)
            group._subscription.assign_from_subscribed(group._all)
            time.sleep(0.0003)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    told, until_s = [], time.monotonic() + 3
    try:
        while time.monotonic() < until_s:
            told.append(consumer.positions())
    finally:
        done.set()
        thread.join()
    ends = {place: max(message.offset for message in read if message.place == place) for place in stay}
    assert all(positions[place] > ends[place] for positions in told for place in stay)
    assert len(told) > 10
    consumer.close()
