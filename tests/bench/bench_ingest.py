"""Joining against the least that could be done with the same records: reading the log and inserting the bodies in bulk.

Kafka and PostgreSQL where both can be had, else the embedded log and SQLite. Ours is the joiner's process as it runs in production:
it reads what collectors and gateways packed, decodes, joins, writes turns, outcomes, episodes and revisions, advances its offsets
and publishes pointers. The baseline is a plain kafka-python consumer with one record per event (nobody packs for it), its defaults,
and one statement per batch: once as `pip install kafka-python` leaves it, with a checksum in Python, and once with the one in C
that Slipstream installs, which makes it four times as fast. All run in turns, in processes of their own; the median is told. Two
joiners share the partitions of one group.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from contracts.record import Record
from contracts.topics import OUTCOMES, TURNS
from infra.db.engine import open_db, writing
from infra.db.insert import insert_all
from infra.db.tables.stream import OutboxRow
from infra.eventlog.open import open_log_at
from infra.eventlog.port import EventLog
from tests.bench.joining import Place, bare_per_s, fill, fill_bare, joined_per_s, story
from tests.bench.row import Row
from tests.integration.conftest import Kafka, find_kafka
from tests.integration.postgres import Postgres, find_binaries

STAGES = frozenset({"ingest"})
EPISODE_COUNT = 10_000
ROUNDS = 3

Server = TypeVar("Server", Kafka, Postgres)


def measure(seeds: int) -> list[Row]:
    told = story(EPISODE_COUNT)
    with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as folder:
        binaries, broker = find_binaries(), find_kafka()
        if binaries is None or broker is None:
            return _embedded(Path(folder), told)
        with _started(Kafka(None, broker, Path(folder) / "kafka")) as kafka, _started(Postgres(None, binaries)) as postgres:
            return _real(Place(f"kafka://{kafka.bootstrap}", Path(folder) / "payloads"), postgres, told)


def _real(place: Place, postgres: Postgres, told: list[tuple[str, Record]]) -> list[Row]:
    fill(place, told)
    fill_bare(place, told)
    rates: dict[str, list[float]] = {"one": [], "two": [], "bare": [], "bare_crc32c": []}
    for _ in range(ROUNDS):
        rates["bare"].append(bare_per_s(place, postgres.new_database(), len(told), crc32c=False))
        rates["bare_crc32c"].append(bare_per_s(place, postgres.new_database(), len(told), crc32c=True))
        rates["one"].append(joined_per_s(place, postgres.new_database(), len(told), 1))
        rates["two"].append(joined_per_s(place, postgres.new_database(), len(told), 2))
    bare, bare_crc32c, one, two = (statistics.median(rates[name]) for name in ("bare", "bare_crc32c", "one", "two"))
    return [
        Row.beside("ingest.join_vs_bare", one, bare, "records/s", 0.4, "higher"),
        Row.beside("ingest.join_vs_bare_crc32c", one, bare_crc32c, "records/s", 0.4, "higher"),
        Row.beside("ingest.two_joiners", two, one, "records/s", 1.7, "higher"),
    ]


def _embedded(folder: Path, told: list[tuple[str, Record]]) -> list[Row]:
    place = Place(f"sqlite:///{folder}/log.db", folder / "payloads")
    fill(place, told)
    ours = joined_per_s(place, f"sqlite:///{folder}/ours.db", len(told), 1)
    log = open_log_at(place.log_url, place.payloads)
    bare = len(told) / _bare_embedded_s(log, folder, len(told))
    log.close()
    return [Row.beside("ingest.join_vs_bare", ours, bare, "records/s", 0.1, "higher")]


def _bare_embedded_s(log: EventLog, folder: Path, records: int) -> float:
    engine = open_db(f"sqlite:///{folder}/bare.db")
    consumer = log.consumer("bare", [TURNS.name, OUTCOMES.name])
    start, seen = time.perf_counter(), 0
    while seen < records:
        if messages := consumer.poll(0.5):
            rows = [{"owner": "bare", "topic": m.topic, "record_key": m.key, "value": m.value} for m in messages]
            with writing(engine) as session:
                insert_all(session, OutboxRow, rows)
            consumer.commit({m.place: m.offset + 1 for m in messages})
            seen += len(messages)
    spent = time.perf_counter() - start
    consumer.close()
    return spent


@contextmanager
def _started(server: Server) -> Iterator[Server]:
    try:
        yield server
    finally:
        server.stop()
