"""Retention and deletion on a real PostgreSQL: the tests written for SQLite hold there too, and nobody writes behind a deletion."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from contracts.episode import EpisodeClosed
from contracts.topics import EPISODES, OUTCOMES, TURNS, grave
from contracts.turn import Turn
from infra.clock import to_ms
from infra.db.engine import open_db, reading, writing
from infra.db.query import Session, select
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


@pytest.mark.parametrize("who", ["joiner", "rewarder"])
def test_what_is_being_written_while_somebody_is_deleted_is_deleted_too(postgres_url: str, tmp_path: Path, tab_policy, who: str):
    """A writer that has looked for tombstones and not committed yet must not commit behind the deletion's back."""
    engine = open_db(postgres_url)
    settings = Settings(home=tmp_path, db_url=postgres_url)
    log = open_log(settings)
    log.ensure([TURNS, OUTCOMES, grave(TURNS), grave(OUTCOMES)])
    joiner, rewarder = Joiner({"tab": tab_policy}, Hands(EPOCH)), Rewarder({"tab": tab_policy})
    told = [make_turn("ep", subject="ada"), make_outcome("accepted", "a", "ep"), make_outcome("closed", "c", "ep")]
    asked_ms = to_ms(EPOCH) + 3_600_000

    def join(session: Session) -> None:
        topics = [TURNS.name if isinstance(one, Turn) else OUTCOMES.name for one in told]
        messages = [Message(topic, 0, n, "ep", one.encode(), 0) for n, (topic, one) in enumerate(zip(topics, told, strict=True))]
        joiner.apply(session, [Delivery(*pair) for pair in zip(messages, told, strict=True)])

    def reward(session: Session) -> None:
        pointer = EpisodeClosed(episode_id="ep", policy="tab", revision=1)
        rewarder.apply(session, [Delivery(Message(EPISODES.name, 0, 0, None, b"", 0), pointer)])

    def delete() -> None:
        deletion_id = deletion.ask(engine, ["ada"], asked_ms)
        deletion.finish(deletion.places(settings, engine, log), deletion_id, asked_ms)

    if who == "rewarder":
        with writing(engine) as session:
            join(session)
    thread = threading.Thread(target=delete)
    with writing(engine) as session:
        (join if who == "joiner" else reward)(session)
        thread.start()
        thread.join(2.0)
    thread.join(60)
    tables = (TurnRow, OutcomeRow, EpisodeRow, RevisionRow, RewardRow, SampleRow)
    with reading(engine) as session:
        left = [table.__name__ for table in tables if session.exec(select(table)).all()]
    log.close()
    engine.dispose()
    assert left == []
