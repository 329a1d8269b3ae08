"""Joining against the least that could be done: reading the log and inserting the bodies in bulk, same records, same database."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from contracts.topics import EPISODES, OUTCOMES, REFUSALS, TURNS
from infra.clock import system_clock
from infra.db.engine import open_db, writing
from infra.db.insert import insert_new
from infra.db.tables.stream import OutboxRow
from infra.eventlog.embedded import EmbeddedLog
from infra.eventlog.port import Entry
from infra.policies import load_policy, shipped_policies
from infra.stream import Stream
from ingest.join.joiner import GROUP, Joiner
from tests.bench.row import Row
from tests.conftest import make_outcome, make_turn

STAGES = frozenset({"ingest"})
EPISODE_COUNT = 3000
KINDS = ("shown", "accepted", "closed")


def measure(seeds: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as folder:
        log = EmbeddedLog(Path(folder) / "log.db")
        log.ensure([TURNS, OUTCOMES, REFUSALS, EPISODES])
        records = _fill(log)
        ours, bare = records / _joined_s(log, folder, records), records / _bare_s(log, folder, records)
        log.close()
    return [Row.beside("ingest.join_vs_bare", ours, bare, "records/s", 0.1, "higher")]


def _fill(log: EmbeddedLog) -> int:
    episodes = [f"ep-{number}" for number in range(EPISODE_COUNT)]
    ids = tuple(range(100))
    log.append(TURNS.name, [Entry(name, make_turn(episode_id=name, prompt_ids=ids).encode()) for name in episodes])
    told = [(name, make_outcome(kind, f"{name}-{kind}", episode_id=name)) for name in episodes for kind in KINDS]
    log.append(OUTCOMES.name, [Entry(name, outcome.encode()) for name, outcome in told])
    return len(episodes) + len(told)


def _joined_s(log: EmbeddedLog, folder: str, records: int) -> float:
    policy = load_policy(shipped_policies("demo") / "tab.yaml")
    engine = open_db(f"sqlite:///{folder}/ours.db")
    stream = Stream(engine, log, GROUP, (TURNS, OUTCOMES, REFUSALS), Joiner({"tab": policy}, system_clock).apply)
    start, seen = time.perf_counter(), 0
    while seen < records:
        seen += stream.step(0.5)
    spent = time.perf_counter() - start
    stream.close()
    return spent


def _bare_s(log: EmbeddedLog, folder: str, records: int) -> float:
    engine = open_db(f"sqlite:///{folder}/bare.db")
    consumer = log.consumer("bare", [TURNS.name, OUTCOMES.name])
    start, seen = time.perf_counter(), 0
    while seen < records:
        messages = consumer.poll(0.5)
        if messages:
            rows = [OutboxRow(owner="bare", topic=m.topic, record_key=m.key, value=m.value) for m in messages]
            with writing(engine) as session:
                insert_new(session, OutboxRow, rows)
            consumer.commit({m.place: m.offset + 1 for m in messages})
            seen += len(messages)
    spent = time.perf_counter() - start
    consumer.close()
    return spent
