"""Joiners in processes of their own, started on a mark, and a bare consumer: what the benchmarks of the joiner compare.

A reader first takes one message of each partition, so that it has its place in the group; then it waits for the mark. A reader's
clock runs from the mark to the last message that any of them took.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.errors import Retry
from contracts.record import Record
from contracts.topics import EPISODES, OUTCOMES, REFUSALS, TURNS
from infra.clock import system_clock, to_ms
from infra.db.engine import open_db
from infra.eventlog.open import open_log_at
from infra.eventlog.port import Entry
from infra.policies import load_policy, shipped_policies
from infra.stream import Stream
from ingest.join.joiner import BATCH, GROUP, Joiner
from ingest.join.loop import seldom_look_for_cycles
from tests.conftest import EPOCH, make_outcome, make_turn

KINDS = ("shown", "accepted", "persisted", "closed")
CHUNK = 50
BARE = "bare"
TICK_S = 0.5
PATIENCE_S = 120.0

_spawn = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Place:
    """Where a benchmark runs."""

    log_url: str
    payloads: Path


def story(episodes: int) -> list[tuple[str, Record]]:
    """Answers of 100 tokens and what happened to them, just now, mixed as they come: a few dozen people at a time."""
    told: list[tuple[str, Record]] = []
    now_s = (system_clock() - EPOCH).total_seconds()
    ids = tuple(range(100))
    for start in range(0, episodes, CHUNK):
        names = [f"ep-{uuid.uuid4().hex}" for _ in range(start, min(start + CHUNK, episodes))]
        told += [(TURNS.name, make_turn(episode_id=name, at_s=now_s, prompt_ids=ids)) for name in names]
        told += [
            (OUTCOMES.name, make_outcome(kind, uuid.uuid4().hex, episode_id=name, at_s=now_s + 1))
            for kind in KINDS
            for name in names
        ]
    return told


def fill(place: Place, told: Sequence[tuple[str, Record]]) -> None:
    """As gateways and collectors do it: a hundred at a time."""
    log = open_log_at(place.log_url, place.payloads)
    log.ensure([TURNS, OUTCOMES, REFUSALS, EPISODES])
    for topic in (TURNS.name, OUTCOMES.name):
        records = [record for name, record in told if name == topic]
        for start in range(0, len(records), 100):
            log.append(topic, [Entry(str(r.episode_id), r.encode()) for r in records[start : start + 100]])
    log.close()


def joined_per_s(place: Place, database: str, count: int, members: int) -> float:
    return _race(place, count, [(_join, (database,))] * members)


def _race(place: Place, count: int, runners: Sequence[tuple[Callable[..., None], tuple[Any, ...]]]) -> float:
    ready, mark, done, seated = _spawn.Barrier(len(runners) + 1), _spawn.Event(), _spawn.Value("q", 0), _spawn.Value("q", 0)
    answers = _spawn.Queue()
    processes = [
        _spawn.Process(target=run, args=(place, *args, len(runners), count, ready, mark, done, seated, answers))
        for run, args in runners
    ]
    for process in processes:
        process.start()
    ready.wait(PATIENCE_S)
    before, start = done.value, time.time()
    mark.set()
    ended = [answers.get(timeout=PATIENCE_S) for _ in processes]
    for process in processes:
        process.join(30)
    if os.environ.get("BENCH_CPU"):
        print(f"{[run.__name__ for run, _ in runners]}: {sum(cpu for _, cpu in ended) / count * 1e6:.0f} us of a core per record")
    return float((count - before) / (max(end for end, _ in ended) - start))


def bare_per_s(place: Place, database: str, count: int, crc32c: bool) -> float:
    """`crc32c`: with the checksum in C, which kafka-python uses where it is installed and does not install by itself."""
    return _race(place, count, [(_bare if crc32c else _bare_alone, (database,))])


def fill_bare(place: Place, told: Sequence[tuple[str, Record]]) -> None:
    """One record per event, as kafka-python's producer sends them."""
    from kafka import KafkaAdminClient, KafkaProducer

    servers = place.log_url.removeprefix("kafka://")
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics({BARE: {"num_partitions": TURNS.partitions}})
    admin.close()
    producer = KafkaProducer(bootstrap_servers=servers)
    for _, record in told:
        producer.send(BARE, record.encode(), str(record.episode_id).encode())
    producer.flush()
    producer.close()


def _bare_alone(*given: Any) -> None:
    sys.modules["crc32c"] = None  # type: ignore[assignment]
    _bare(*given)


def _bare(
    place: Place, database: str, members: int, count: int, ready: Any, mark: Any, done: Any, seated: Any, answers: Any
) -> None:
    import psycopg
    from kafka import KafkaConsumer

    servers = place.log_url.removeprefix("kafka://")
    consumer = KafkaConsumer(
        BARE, bootstrap_servers=servers, group_id=f"bare-{uuid.uuid4().hex}", auto_offset_reset="earliest", max_poll_records=BATCH
    )
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        connection.execute("CREATE TABLE bare (id bigserial PRIMARY KEY, topic text, record_key text, body text)")
        connection.commit()
        insert = "INSERT INTO bare (topic, record_key, body) VALUES (%s, %s, %s)"

        def read(most: int) -> int:
            found = consumer.poll(timeout_ms=100, max_records=most)
            rows = [(r.topic, r.key.decode(), r.value.decode()) for records in found.values() for r in records]
            if rows:
                with connection.cursor() as cursor:
                    cursor.executemany(insert, rows)
                connection.commit()
            return len(rows)

        while len(consumer.assignment()) < TURNS.partitions:
            consumer.poll(timeout_ms=100, max_records=1)
        ready.wait(PATIENCE_S)
        mark.wait(PATIENCE_S)
        end, used = time.time(), time.process_time()
        consumer.seek_to_beginning()  # what was fetched before the mark is fetched again
        while done.value < count:
            if taken := read(BATCH):
                _add(done, taken)
                end = time.time()
    answers.put((end, time.process_time() - used))
    consumer.close()


def _join(
    place: Place, database: str, members: int, count: int, ready: Any, mark: Any, done: Any, seated: Any, answers: Any
) -> None:
    """What `ingest.join.loop` does, on a mark."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    log = open_log_at(place.log_url, place.payloads)
    engine = open_db(database)
    joiner = Joiner({"tab": load_policy(shipped_policies("demo") / "tab.yaml")}, system_clock)
    stream = Stream(engine, log, GROUP, (TURNS, OUTCOMES, REFUSALS), joiner.apply)
    seldom_look_for_cycles()
    settled = False
    while seated.value < members:  # a member that stops polling too early keeps the others waiting
        with suppress(Retry):
            _add(done, stream.step(0.1, most=1))
            if not settled and _held(stream) == TURNS.partitions // members:
                settled = True
                _add(seated, 1)
    ready.wait(PATIENCE_S)
    mark.wait(PATIENCE_S)
    end, due, used = time.time(), 0.0, time.process_time()
    while done.value < count:
        with suppress(Retry):
            if read := stream.step(0.1, BATCH):
                _add(done, read)
                end = time.time()
            if time.monotonic() >= due:
                now_ms = to_ms(system_clock())
                joiner.close_quiet(engine, stream.watermark_ms(now_ms))
                due = time.monotonic() + TICK_S
    answers.put((end, time.process_time() - used))
    stream.close()
    log.close()


def _held(stream: Stream) -> int:
    return sum(1 for place in stream.watermark_ms(1) if place.topic == TURNS.name)


def _add(total: Any, number: int) -> None:
    with total.get_lock():
        total.value += number
