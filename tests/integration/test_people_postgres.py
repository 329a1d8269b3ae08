"""Retention and deletion on a real PostgreSQL: the tests written for SQLite hold there too, and nobody writes behind a deletion."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from contracts.episode import EpisodeClosed
from contracts.states import EpisodeState
from contracts.topics import EPISODES, OUTCOMES, TURNS, grave
from contracts.turn import Turn
from infra.clock import to_ms
from infra.db.engine import open_db, reading, writing
from infra.db.query import select
from infra.db.tables.ingest import EpisodeRow, OutcomeRow, RevisionRow, TurnRow
from infra.db.tables.rewarding import RewardRow, SampleRow
from infra.eventlog.open import open_log
from infra.eventlog.port import Message
from infra.people import deletion
from infra.settings import Settings
from infra.stream import Delivery
from ingest.join.joiner import Joiner
from rewarding.rewarder import Rewarder
from tests.conftest import EPOCH, REPOSITORY, Hands, make_outcome, make_turn
from tests.integration.postgres import Postgres

pytestmark = pytest.mark.integration

FILES = ("tests/unit/ingest/test_retain.py", "tests/flow/test_subject_delete.py")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", FILES)
def test_what_holds_on_sqlite_holds_here(postgres: Postgres, file: str):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.integration.on_postgres", file]
    environment = os.environ | {"SLIPSTREAM_TEST_POSTGRES": postgres.base_url}
    ran = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:]


@pytest.mark.parametrize("wait_s", [0.0, 0.05, 0.15, 0.3])
def test_a_joiner_and_a_rewarder_at_work_write_nothing_behind_a_deletion(postgres_url: str, tmp_path: Path, tab_policy, wait_s):
    engine = open_db(postgres_url)
    settings = Settings(home=tmp_path, db_url=postgres_url)
    log = open_log(settings)
    log.ensure([TURNS, OUTCOMES, grave(TURNS), grave(OUTCOMES)])
    policies = {"tab": tab_policy}
    joiner, rewarder = Joiner(policies, Hands(EPOCH)), Rewarder(policies)
    asked_ms = to_ms(EPOCH) + 3_600_000
    begun = threading.Event()
    nowhere = Message(EPISODES.name, 0, 0, None, b"", 0)

    def join() -> None:
        for n in range(60):
            name = f"ep-{n:03}"
            outcomes = [make_outcome(kind, f"{name}-{kind}", name) for kind in ("accepted", "closed")]
            told = [make_turn(name, subject="ada"), *outcomes]
            topics = [TURNS.name if isinstance(one, Turn) else OUTCOMES.name for one in told]
            with writing(engine) as session:
                messages = [Message(topic, 0, n, name, one.encode(), 0) for topic, one in zip(topics, told, strict=True)]
                joiner.apply(session, [Delivery(*pair) for pair in zip(messages, told, strict=True)])
            with reading(engine) as session:
                closed = session.exec(select(EpisodeRow.episode_id).where(EpisodeRow.state == EpisodeState.CLOSED)).all()
            with writing(engine) as session:
                pointers = [EpisodeClosed(episode_id=one, policy="tab", revision=1) for one in closed]
                rewarder.apply(session, [Delivery(nowhere, pointer) for pointer in pointers])
            begun.set()

    thread = threading.Thread(target=join)
    thread.start()
    begun.wait(30)
    threading.Event().wait(wait_s)
    deletion_id = deletion.ask(engine, ["ada"], asked_ms)
    deletion.finish(deletion.places(settings, engine, log), deletion_id, asked_ms)
    thread.join(60)
    tables = (TurnRow, OutcomeRow, EpisodeRow, RevisionRow, RewardRow, SampleRow)
    with reading(engine) as session:
        left = [table.__name__ for table in tables if session.exec(select(table)).all()]
    log.close()
    engine.dispose()
    assert left == []
