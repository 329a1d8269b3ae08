"""What the embedded log does beyond the port: trimming, keys to partitions, and memberships that lapse."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.outcome import Refusal
from contracts.topics import Topic
from infra.eventlog.embedded import EmbeddedLog, partition_of
from infra.eventlog.embedded_group import HANDOVER_S, share
from infra.eventlog.port import Entry, Partition
from tests.contract.eventlog_acts import numbered, places, take, until, values

TOPIC = Topic("events", Refusal, "refusal_id", 4, 3600)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    log = EmbeddedLog(tmp_path / "log.db", session_timeout_s=0.6)
    log.ensure([TOPIC])
    yield log
    log.close()


def test_keys_stay_in_their_partition_for_ever() -> None:
    """Stored records depend on it: this test must not be changed."""
    assert [partition_of(key, 4) for key in ("ep-1", "ep-2", "ep-3", "", "東京")] == [0, 2, 0, 0, 3]


@given(calls=st.lists(st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(0, 99)), max_size=12), max_size=12))
@settings(max_examples=40, deadline=None)
def test_any_interleaving_of_appends_keeps_all_and_the_order_of_each_key(calls: list[list[tuple[str, int]]]) -> None:
    expected: dict[str | None, list[int]] = defaultdict(list)
    with TemporaryDirectory() as folder:
        logs = [EmbeddedLog(Path(folder) / "log.db") for _ in range(2)]
        logs[0].ensure([TOPIC])
        for number, call in enumerate(calls):
            logs[number % 2].append(TOPIC.name, [Entry(key, str(value).encode()) for key, value in call])
            for key, value in call:
                expected[key].append(value)
        consumer = logs[1].consumer("group", [TOPIC.name])
        found: dict[str | None, list[int]] = defaultdict(list)
        while messages := consumer.poll(0, most=5):
            for message in messages:
                found[message.key].append(int(message.value))
        consumer.close()
        for log in logs:
            log.close()
    assert found == expected


def test_trim_deletes_what_is_too_old_and_leaves_no_gap(log: EmbeddedLog) -> None:
    brief = Topic("brief", Refusal, "refusal_id", 2, 60)
    log.ensure([brief])
    log.append(TOPIC.name, numbered(20, keys=10))
    log.append(brief.name, numbered(5_000, keys=10))
    assert log.trim() == 0
    log_time = time.time()
    assert log.trim(log_time + 30) == 0
    assert log.trim(log_time + 120) == 5_000
    ends = log.ends(brief.name)
    assert sum(ends.values()) == 5_000
    log.append(brief.name, numbered(10, keys=10))
    consumer = log.consumer("group", [TOPIC.name, brief.name])
    read = take(consumer, 30)
    assert len(read) == 30
    assert all(message.offset >= ends[message.place] for message in read if message.topic == brief.name)
    consumer.close()


def test_a_new_retention_is_taken_over_and_another_number_of_partitions_is_not(log: EmbeddedLog) -> None:
    log.append(TOPIC.name, numbered(20, keys=10))
    log.ensure([Topic(TOPIC.name, Refusal, "refusal_id", 9, 1)])
    assert len(log.ends(TOPIC.name)) == 4
    assert log.trim(time.time() + 30) == 20


def test_a_large_backlog_comes_in_pieces_that_fit_the_memory(log: EmbeddedLog) -> None:
    for _ in range(3):
        log.append(TOPIC.name, [Entry("key", bytes(1_000_000))] * 10)
    consumer = log.consumer("group", [TOPIC.name])
    assert len(consumer.poll(1)) == 17
    assert len(consumer.poll(1)) == 13
    consumer.close()


def test_no_partition_starves_behind_a_long_one(log: EmbeddedLog) -> None:
    keys = {partition_of(str(n), 4): str(n) for n in range(50)}
    log.append(TOPIC.name, [Entry(keys[0], b"0")] * 2_000)
    log.append(TOPIC.name, [Entry(keys[3], b"3")])
    consumer = log.consumer("group", [TOPIC.name])
    read = consumer.poll(1, most=100) + consumer.poll(1, most=100)
    assert 3 in values(read)
    consumer.close()


def test_a_silent_member_loses_its_partitions_and_starts_where_it_is_told_when_it_is_back(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log.db", session_timeout_s=3.0)  # long enough for who polls not to be taken for silent
    log.ensure([TOPIC])
    log.append(TOPIC.name, numbered(40, keys=20))
    silent = log.consumer("group", [TOPIC.name])
    assert len(take(silent, 40)) == 40
    active = log.consumer("group", [TOPIC.name])
    until(lambda read: active.assignment() == places(TOPIC), [active])
    active.commit(log.ends(TOPIC.name))
    log.append(TOPIC.name, numbered(40, keys=20, start=40))
    assert silent.poll(0) == [] and silent.assignment() == frozenset()
    read = until(lambda read: len(read) >= 40, [silent, active])
    assert sorted(values(read)) == list(range(40, 80))
    assert len(silent.assignment()) == len(active.assignment()) == 2
    for consumer in (silent, active):
        consumer.close()
    log.close()


def test_a_member_alone_is_not_struck_off_for_being_slow(log: EmbeddedLog) -> None:
    consumer = log.consumer("group", [TOPIC.name])
    consumer.poll(0)
    time.sleep(0.8)
    log.append(TOPIC.name, numbered(1))
    assert values(consumer.poll(0)) == [0]
    consumer.close()


def test_gained_partitions_wait_for_their_owner_but_not_for_long(log: EmbeddedLog) -> None:
    busy = EmbeddedLog(log._path, session_timeout_s=30).consumer("group", [TOPIC.name])
    busy.poll(0)
    joining = log.consumer("group", [TOPIC.name])
    started = time.monotonic()
    until(lambda read: len(joining.assignment()) == 2, [joining])
    assert HANDOVER_S - 0.1 < time.monotonic() - started < 20
    busy.poll(0)
    assert busy.assignment().isdisjoint(joining.assignment())
    for consumer in (busy, joining):
        consumer.close()


def test_heartbeats_are_not_a_write_per_poll(log: EmbeddedLog) -> None:
    consumer = log.consumer("group", [TOPIC.name])
    consumer.poll(0)
    before = log._file.version()
    writes, started = 0, time.monotonic()
    while writes == 0 or time.monotonic() - started < 0.5:
        consumer.poll(0)
        after = log._file.version()
        writes += after != before
        before = after
    assert writes <= 1 + (time.monotonic() - started) / 0.2  # a session of 0.6 s: every 0.2 s
    consumer.close()


@given(
    readers=st.dictionaries(st.integers(1, 99), st.sets(st.sampled_from("abc"), min_size=1), min_size=1, max_size=9),
    counts=st.fixed_dictionaries({topic: st.integers(1, 12) for topic in "abc"}),
)
def test_shares_are_whole_disjoint_and_balanced(readers: dict[int, set[str]], counts: dict[str, int]) -> None:
    shares = share(readers, counts)
    for topic, count in counts.items():
        theirs = [sum(place.topic == topic for place in mine) for member, mine in shares.items() if topic in readers[member]]
        everything = [place for mine in shares.values() for place in mine if place.topic == topic]
        assert sorted(everything) == ([Partition(topic, number) for number in range(count)] if theirs else [])
        assert not theirs or max(theirs) - min(theirs) <= 1
