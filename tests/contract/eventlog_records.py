"""The part of the event log's promise that is about records: what goes in comes out, in order."""

from __future__ import annotations

import threading
import time
from collections import defaultdict

import pytest

from contracts.errors import UnknownName
from contracts.topics import Topic
from infra.eventlog.open import open_log
from infra.eventlog.port import Entry, EventLog, Partition
from tests.contract.eventlog_acts import (
    Join,
    commit,
    new_group,
    new_topic,
    numbered,
    places,
    take,
    until,
    until_read,
    values,
)


class Records:
    def test_keeps_the_order_of_each_key_over_several_partitions(self, log: EventLog, topic: Topic, join: Join) -> None:
        for start in range(0, 400, 50):
            log.append(topic.name, numbered(50, keys=20, start=start))
        read = take(join(new_group(), topic), 400)
        by_key: dict[str | None, list[int]] = defaultdict(list)
        by_place: dict[Partition, list[int]] = defaultdict(list)
        for message in read:
            by_key[message.key].append(int(message.value))
            by_place[message.place].append(message.offset)
        assert by_key == {f"key-{key}": list(range(key, 400, 20)) for key in range(20)}
        assert len(by_place) > 1
        assert all(offsets == list(range(len(offsets))) for offsets in by_place.values())

    def test_carries_any_payload(self, log: EventLog, topic: Topic, join: Join) -> None:
        large = bytes(range(256)) * 800
        sent = [Entry("grüße-東京-🙂", b""), Entry("large", large), Entry(None, b"\x00\xff"), Entry("", b"empty key")]
        before_ms = time.time() * 1000
        log.append(topic.name, sent)
        read = take(join(new_group(), topic), 4)
        assert {(message.key, message.value) for message in read} == set(sent)
        assert all(abs(message.timestamp_ms - before_ms) < 60_000 for message in read)

    def test_appending_nothing_is_nothing(self, log: EventLog, topic: Topic) -> None:
        log.append(topic.name, [])
        assert log.ends(topic.name) == dict.fromkeys(places(topic), 0)

    def test_records_without_key_are_spread(self, log: EventLog, topic: Topic) -> None:
        for n in range(64):
            log.append(topic.name, [Entry(None, str(n).encode())])
        ends = log.ends(topic.name)
        assert sum(ends.values()) == 64 and sum(end > 0 for end in ends.values()) > 1

    def test_reads_no_more_than_asked_and_waits_no_longer(self, log: EventLog, topic: Topic, join: Join) -> None:
        log.append(topic.name, numbered(50, keys=20))
        consumer = join(new_group(), topic)
        first = until_read(consumer, most=7)
        assert 0 < len(first) <= 7
        rest = take(consumer, 50 - len(first))
        assert sorted(values([*first, *rest])) == list(range(50))
        started = time.monotonic()
        assert consumer.poll(0.3) == []
        assert 0.25 < time.monotonic() - started < 3

    def test_a_waiting_poll_sees_what_another_writes(self, url: str, topic: Topic, join: Join) -> None:
        consumer = join(new_group(), topic)
        until(lambda read: consumer.assignment() == places(topic), [consumer])
        other = open_log(url)
        timer = threading.Timer(0.3, other.append, (topic.name, numbered(1)))
        timer.start()
        started = time.monotonic()
        assert values(consumer.poll(10)) == [0]
        assert time.monotonic() - started < 3
        timer.join()
        other.close()

    def test_ends_and_committed(self, log: EventLog, topic: Topic, join: Join) -> None:
        group = new_group()
        assert log.ends(topic.name) == log.committed(group, topic.name) == dict.fromkeys(places(topic), 0)
        log.append(topic.name, numbered(60, keys=10))
        ends = log.ends(topic.name)
        assert sum(ends.values()) == 60
        consumer = join(group, topic)
        commit(consumer, take(consumer, 60))
        assert log.committed(group, topic.name) == ends
        assert log.committed(new_group(), topic.name) == dict.fromkeys(places(topic), 0)

    def test_ensure_may_be_repeated_and_raced(self, url: str, log: EventLog) -> None:
        topics = [new_topic(), new_topic(partitions=2)]
        logs = [open_log(url) for _ in range(3)]
        failures: list[Exception] = []

        def ensure(own: EventLog) -> None:
            try:
                own.ensure(topics)
                own.append(topics[0].name, numbered(1))
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=ensure, args=(own,)) for own in logs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.ensure(topics)
        for own in logs:
            own.close()
        assert failures == []
        assert [len(log.ends(topic.name)) for topic in topics] == [4, 2]
        assert sum(log.ends(topics[0].name).values()) == 3

    def test_threads_append_side_by_side(self, log: EventLog, topic: Topic, join: Join) -> None:
        def write(start: int) -> None:
            for n in range(start, start + 100, 5):
                log.append(topic.name, [Entry(f"thread-{start}", str(m).encode()) for m in range(n, n + 5)])

        threads = [threading.Thread(target=write, args=(start,)) for start in range(0, 400, 100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        read = take(join(new_group(), topic), 400)
        for start in range(0, 400, 100):
            assert values([m for m in read if m.key == f"thread-{start}"]) == list(range(start, start + 100))

    def test_an_unknown_topic_is_answered_with_the_known_ones(self, log: EventLog, topic: Topic) -> None:
        unknown = new_topic().name
        for ask in (
            lambda: log.append(unknown, numbered(1)),
            lambda: log.consumer(new_group(), [topic.name, unknown]),
            lambda: log.ends(unknown),
            lambda: log.committed(new_group(), unknown),
        ):
            with pytest.raises(UnknownName, match=f"{unknown}.*{topic.name}"):
                ask()
