"""The part of the event log's promise that is about groups: who reads what, from where, and who takes over."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

from contracts.errors import Retry
from contracts.topics import Topic
from infra.eventlog.port import EventLog, Partition
from tests.contract.eventlog_acts import (
    Join,
    by_place,
    commit,
    new_group,
    new_topic,
    numbered,
    patience,
    places,
    take,
    until,
    until_read,
    values,
)
from tests.contract.member import killable_member


class Groups:
    def test_a_group_shares_the_partitions(self, log: EventLog, topic: Topic, join: Join) -> None:
        group = new_group()
        one, two = join(group, topic), join(group, topic)
        read = until(lambda read: len(one.assignment()) == len(two.assignment()) == 2, [one, two])
        assert one.assignment() | two.assignment() == places(topic)
        log.append(topic.name, numbered(200, keys=40))
        read += until(lambda read: len(read) >= 200, [one, two])
        assert sorted(values(read)) == list(range(200))

    def test_more_members_than_partitions(self, log: EventLog, join: Join) -> None:
        topic = new_topic(partitions=1)
        log.ensure([topic])
        group = new_group()
        one, two = join(group, topic), join(group, topic)
        until(lambda read: one.assignment() | two.assignment() == places(topic), [one, two])
        until(lambda read: len(one.assignment()) + len(two.assignment()) == 1, [one, two])

    def test_topics_with_equally_many_partitions_are_shared_alike(self, log: EventLog, topic: Topic, join: Join) -> None:
        twin = new_topic()
        log.ensure([twin])
        group = new_group()
        one, two = join(group, topic, twin), join(group, topic, twin)
        until(lambda read: len(one.assignment()) == len(two.assignment()) == 4, [one, two])
        assert {place.number for place in one.assignment()}.isdisjoint(place.number for place in two.assignment())
        log.append(topic.name, numbered(100, keys=30))
        log.append(twin.name, numbered(100, keys=30))
        homes: dict[str | None, set[int]] = defaultdict(set)
        for message in take(join(new_group(), topic, twin), 200):
            homes[message.key].add(message.partition)
        assert all(len(home) == 1 for home in homes.values())

    def test_each_group_reads_everything(self, log: EventLog, topic: Topic, join: Join) -> None:
        log.append(topic.name, numbered(60, keys=10))
        for group in (new_group(), new_group()):
            assert sorted(values(take(join(group, topic), 60))) == list(range(60))

    def test_a_restart_resumes_at_what_was_committed(self, log: EventLog, topic: Topic, join: Join) -> None:
        log.append(topic.name, numbered(60, keys=10))
        group = new_group()
        consumer = join(group, topic)
        read = take(consumer, 60)
        commit(consumer, read[:25])  # in the middle of what was appended at once
        consumer.close()
        again = take(join(group, topic), 35)
        assert sorted(values([*read[:25], *again])) == list(range(60))

    def test_what_on_assigned_says_wins_over_what_was_committed(self, log: EventLog, topic: Topic, join: Join) -> None:
        log.append(topic.name, numbered(60, keys=10))
        group = new_group()
        consumer = join(group, topic)
        commit(consumer, take(consumer, 60))
        consumer.close()
        lying = {place: [message.offset for message in lies] for place, lies in by_place(log.scan(topic.name)).items()}
        told = {place: offsets[len(offsets) // 2] for place, offsets in lying.items() if place.number < 2}
        asked: list[frozenset[Partition]] = []

        def on_assigned(assigned: frozenset[Partition]) -> dict[Partition, int]:
            asked.append(assigned)
            return told

        expected = {place: [offset for offset in lying[place] if offset >= start] for place, start in told.items()}
        read = take(join(group, topic, on_assigned=on_assigned), sum(len(offsets) for offsets in expected.values()))
        assert {place: [m.offset for m in found] for place, found in by_place(read).items()} == expected
        assert frozenset().union(*asked) == places(topic)

    def test_on_assigned_that_fails_is_asked_again(self, log: EventLog, topic: Topic, join: Join) -> None:
        log.append(topic.name, numbered(20, keys=10))
        lying = by_place(log.scan(topic.name))
        starts = {place: lying[place][0].offset + 1 if place in lying else 0 for place in places(topic)}
        asked_in: list[int] = []

        def on_assigned(assigned: frozenset[Partition]) -> dict[Partition, int]:
            asked_in.append(threading.get_ident())
            if len(asked_in) == 1:
                raise Retry("the database is away")
            return {place: starts[place] for place in assigned}

        consumer = join(new_group(), topic, on_assigned=on_assigned)
        with pytest.raises(Retry, match="the database is away"):
            until(lambda read: False, [consumer])
        expected = sum(len(lies) - 1 for lies in lying.values())
        read = take(consumer, expected)
        assert len(read) == expected and all(message.offset >= starts[message.place] for message in read)
        assert set(asked_in) == {threading.get_ident()}

    def test_a_start_beyond_the_end_reads_again(self, log: EventLog, topic: Topic, join: Join) -> None:
        log.append(topic.name, numbered(20, keys=10))
        consumer = join(new_group(), topic, on_assigned=lambda assigned: dict.fromkeys(assigned, 10**9))
        assert sorted(values(take(consumer, 20))) == list(range(20))

    def test_others_take_over_after_a_close(self, topic: Topic, join: Join) -> None:
        group = new_group()
        one, two = join(group, topic), join(group, topic)
        until(lambda read: len(one.assignment()) == len(two.assignment()) == 2, [one, two])
        one.close()
        until(lambda read: two.assignment() == places(topic), [two])

    def test_others_take_over_after_a_death(self, url: str, payloads: Path, log: EventLog, topic: Topic, join: Join) -> None:
        group = new_group()
        with killable_member(url, payloads, group, topic.name) as member:
            member.wait_for(4)
            survivor = join(group, topic)
            until(lambda read: len(survivor.assignment()) == 2, [survivor])
            member.kill()
            log.append(topic.name, numbered(100, keys=30))
            until(lambda read: set(values(read)) == set(range(100)), [survivor])
            assert survivor.assignment() == places(topic)

    def test_a_member_commits_only_what_is_its_own(self, log: EventLog, topic: Topic, join: Join) -> None:
        log.append(topic.name, numbered(100, keys=30))
        group = new_group()
        one = join(group, topic)
        until(lambda read: one.assignment() == places(topic), [one])
        two = join(group, topic)
        until(lambda read: len(one.assignment()) == len(two.assignment()) == 2, [one, two])
        one.commit(dict.fromkeys(places(topic), 3))
        expected = {place: 3 if place in one.assignment() else 0 for place in places(topic)}
        until(lambda read: log.committed(group, topic.name) == expected, [one, two])

    def test_what_is_renewed_is_assigned_again(self, log: EventLog, topic: Topic, join: Join) -> None:
        log.append(topic.name, numbered(60, keys=10))
        asked: list[frozenset[Partition]] = []

        def on_assigned(assigned: frozenset[Partition]) -> dict[Partition, int]:
            asked.append(assigned)
            return dict.fromkeys(assigned, 0)

        consumer = join(new_group(), topic, on_assigned=on_assigned)
        read = until_read(consumer, most=7)
        while len(read) < 60:
            read += consumer.poll(0.1)
        again = frozenset(place for place in places(topic) if place.number < 2)
        consumer.renew(again)
        assert not consumer.assignment() & again
        expected = [message for message in read if message.place in again]
        assert by_place(take(consumer, len(expected))) == by_place(expected)
        assert asked[-1] == again and consumer.assignment() == places(topic)

    def test_everything_is_read_at_least_once_while_members_come_and_go(self, log: EventLog, topic: Topic, join: Join) -> None:
        group, total = new_group(), 600
        stop = threading.Event()

        def write() -> None:
            for start in range(0, total, 20):
                log.append(topic.name, numbered(20, keys=30, start=start))
                stop.wait(0.05)

        writer = threading.Thread(target=write)
        writer.start()
        seen: set[int] = set()
        members = [join(group, topic)]
        try:
            deadline = time.monotonic() + patience(60)
            changes = iter([0.5, 1.5, 2.5, 3.5])
            started = time.monotonic()
            due: float | None = next(changes)
            while len(seen) < total or due is not None:
                assert time.monotonic() < deadline, f"{total - len(seen)} were never read"
                for member in members:
                    read = member.poll(0.02, most=50)
                    seen.update(values(read))
                    commit(member, read)
                if due is not None and time.monotonic() - started > due:
                    if len(members) < 3 and due < 3:
                        members.append(join(group, topic))
                    else:
                        members.pop(0).close()
                    due = next(changes, None)
        finally:
            stop.set()
            writer.join()
        assert seen == set(range(total))
