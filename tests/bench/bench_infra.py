"""The embedded event log against the least that could be done: one bare SQLite table, the same rows, the same durability."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from pathlib import Path

from contracts.topics import OUTCOMES
from infra.eventlog.embedded import EmbeddedLog
from infra.eventlog.port import Entry
from tests.bench.row import Row

STAGES = frozenset({"infra"})
BATCHES, BATCH = 300, 100
VALUE = b"x" * 1000


def measure(seeds: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as folder:
        log = EmbeddedLog(Path(folder) / "log.db")
        log.ensure([OUTCOMES])
        start = time.perf_counter()
        for batch in range(BATCHES):
            log.append(OUTCOMES.name, [Entry(f"ep-{batch}-{n}", VALUE) for n in range(BATCH)])
        ours = BATCHES * BATCH / (time.perf_counter() - start)
        log.close()
        bare = _bare(Path(folder) / "bare.db")
    return [Row.beside("infra.log_append_vs_bare", ours, bare, "records/s", 0.3, "higher")]


def _bare(file: Path) -> float:
    db = sqlite3.connect(file, isolation_level=None)
    db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; CREATE TABLE records (k TEXT, v BLOB)")
    start = time.perf_counter()
    for batch in range(BATCHES):
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO records VALUES (?, ?)", [(f"ep-{batch}-{n}", VALUE) for n in range(BATCH)])
        db.execute("COMMIT")
    spent = time.perf_counter() - start
    db.close()
    return BATCHES * BATCH / spent
