"""The part of the event log's promise that is about records: what goes in comes out, in order."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.errors import UnknownName
from contracts.topics import Topic
from infra.eventlog.port import Entry, EventLog
from tests.contract.eventlog_acts import (
    Join,
    by_place,
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
        for message in read:
            by_key[message.key].append(int(message.value))
        assert by_key == {f"key-{key}": list(range(key, 400, 20)) for key in range(20)}
        lying = by_place(read)
        assert len(lying) > 1
        for place, found in lying.items():
            offsets = [message.offset for message in found]
            assert offsets == sorted(set(offsets)) and offsets[0] >= 0
            assert log.ends(topic.name)[place] == offsets[-1] + 1

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
        assert len(list(log.scan(topic.name))) == 64 and sum(end > 0 for end in ends.values()) > 1

    def test_reads_no_more_than_asked_and_waits_no_longer(self, log: EventLog, topic: Topic, join: Join) -> None:
        log.append(topic.name, numbered(50, keys=20))
        consumer = join(new_group(), topic)
        first = until_read(consumer, most=7)
        assert 0 < len(first) <= 7
        rest = take(consumer, 50 - len(first))
        assert sorted(values([*first, *rest])) == list(range(50))
        started = time.monotonic()
        assert consumer.poll(0.3) == []
        assert 0.25 < time.monotonic() - started < 10

    def test_offset_and_one_is_where_reading_goes_on(self, log: EventLog, topic: Topic) -> None:
        for start in range(0, 60, 20):
            log.append(topic.name, numbered(20, keys=10, start=start))
        for place, lying in by_place(log.scan(topic.name)).items():
            for at in range(0, len(lying), 5):
                resumed = [m for m in log.scan(topic.name, {place: lying[at].offset + 1}) if m.place == place]
                assert resumed == lying[at + 1 :]

    def test_a_scan_reads_what_was_there_and_moves_nobody(self, log: EventLog, topic: Topic, join: Join) -> None:
        log.append(topic.name, numbered(700, keys=20))
        group = new_group()
        scan = log.scan(topic.name)
        first = next(scan)
        log.append(topic.name, numbered(10, start=700))
        assert sorted(values([first, *scan])) == list(range(700))
        assert values(log.scan(topic.name, {place: 0 for place in places(topic)})) != []
        assert list(log.scan(topic.name, log.ends(topic.name))) == []
        assert log.committed(group, topic.name) == dict.fromkeys(places(topic), 0)
        assert by_place(take(join(group, topic), 710)) == by_place(log.scan(topic.name))

    def test_a_value_of_any_size_comes_out_as_it_went_in(self, log: EventLog, topic: Topic, join: Join) -> None:
        sent = [Entry("key", bytes([n % 251]) * size) for n, size in enumerate((0, 262_144, 262_145, 3_000_000))]
        log.append(topic.name, sent)
        log.append(topic.name, [Entry("key", b"after")])
        read = take(join(new_group(), topic), 5)
        assert [message.value for message in read] == [*(value for _, value in sent), b"after"]
        assert all(message.fault is None for message in read)

    def test_a_payload_that_is_gone_or_altered_is_the_fault_of_its_message_alone(
        self, log: EventLog, topic: Topic, join: Join, payloads: Path
    ) -> None:
        large = [bytes([n]) * 300_000 for n in range(3)]
        log.append(topic.name, [Entry("key", value) for value in (large[0], b"small", large[1], large[2])])
        files = {file.stat().st_size: file for file in payloads.glob("*/*")}
        assert len(list(payloads.glob("*/*"))) == 3 and len(files) == 1
        by_digest = {file.name: file for file in payloads.glob("*/*")}
        by_digest[hashlib.sha256(large[0]).hexdigest()].unlink()
        by_digest[hashlib.sha256(large[1]).hexdigest()].write_bytes(bytes(300_000))
        read = take(join(new_group(), topic), 4)
        assert [message.fault.reason if message.fault else None for message in read] == [
            *("payload_missing", None, "payload_altered", None)
        ]
        assert [message.value for message in read[1::2]] == [b"small", large[2]]

    def test_how_far_a_group_is_behind(self, log: EventLog, topic: Topic, join: Join) -> None:
        for n in range(6):
            log.append(topic.name, numbered(1, start=n))
        group = new_group()
        assert log.behind(group, topic.name) == 6
        consumer = join(group, topic)
        read = take(consumer, 6)
        commit(consumer, read[:4])
        assert log.behind(group, topic.name) == 2
        commit(consumer, read)
        assert log.behind(group, topic.name) == 0

    def test_positions_pass_what_was_polled(self, log: EventLog, topic: Topic, join: Join) -> None:
        log.append(topic.name, numbered(60, keys=10))
        consumer = join(new_group(), topic)
        read = until_read(consumer, most=7)
        positions = consumer.positions()
        for place, found in by_place(read).items():
            assert found[-1].offset < positions[place]
        while len(read) < 60:
            assert any(positions[place] < end for place, end in log.ends(topic.name).items())
            read += consumer.poll(0.1, 7)
            positions = consumer.positions()
        assert positions == log.ends(topic.name)

    def test_a_waiting_poll_sees_what_another_writes(self, another: Callable[[], EventLog], topic: Topic, join: Join) -> None:
        consumer = join(new_group(), topic)
        until(lambda read: consumer.assignment() == places(topic), [consumer])
        other = another()
        timer = threading.Timer(0.3, other.append, (topic.name, numbered(1)))
        timer.start()
        started = time.monotonic()
        assert values(consumer.poll(60)) == [0]
        assert time.monotonic() - started < 30
        timer.join()
        other.close()

    def test_ends_and_committed(self, log: EventLog, topic: Topic, join: Join) -> None:
        group = new_group()
        assert log.ends(topic.name) == log.committed(group, topic.name) == dict.fromkeys(places(topic), 0)
        log.append(topic.name, numbered(60, keys=10))
        ends = log.ends(topic.name)
        consumer = join(group, topic)
        commit(consumer, take(consumer, 60))
        assert log.committed(group, topic.name) == ends
        assert log.committed(new_group(), topic.name) == dict.fromkeys(places(topic), 0)

    def test_ensure_may_be_repeated_and_raced(self, another: Callable[[], EventLog], log: EventLog) -> None:
        topics = [new_topic(), new_topic(partitions=2)]
        logs = [another() for _ in range(3)]
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
        assert len(list(log.scan(topics[0].name))) == 3

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
