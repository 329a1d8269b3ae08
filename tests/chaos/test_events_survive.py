"""Rounds of 20,000 events while collector, joiners, broker and database are killed with SIGKILL at random moments.

Of each round every event that was taken is in exactly one episode exactly once, every malformed one is refused exactly once, and
nothing else is there. `make chaos ROUNDS=100` runs the long form.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from contracts.episode import Episode
from contracts.errors import Retry, SlipstreamError
from contracts.states import Disposition
from contracts.topics import OUTCOMES, REFUSALS, TURNS
from infra.db.engine import open_db, reading
from infra.db.query import Engine, col, func, select
from infra.db.tables.ingest import EpisodeRow, OutcomeRow, RefusalRow, RevisionRow
from infra.eventlog.open import open_log
from infra.eventlog.port import Entry, EventLog
from infra.settings import Settings
from tests.chaos.intake import PROCESSES, Intake, Traffic, send_all
from tests.chaos.test_demo_survives import until
from tests.conftest import make_turn
from tests.integration.conftest import Kafka
from tests.integration.ports import free_port
from tests.integration.postgres import Postgres

ROUNDS = int(os.environ.get("ROUNDS") or 2)
EVENTS = int(os.environ.get("EVENTS") or 20_000)
POLICY = "tab"
DRAIN_S = 600.0
TURNS_AT_ONCE = 200

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600 + ROUNDS * 900)]


@pytest.fixture
def intake(kafka: Kafka, postgres: Postgres, postgres_url: str, tmp_path: Path) -> Iterator[Intake]:
    if not (kafka.ours and postgres.ours):
        pytest.skip("only servers that the test started are killed")
    log = open_log(Settings(log_url=f"kafka://{kafka.bootstrap}"))
    log.ensure([TURNS, OUTCOMES, REFUSALS])
    log.close()
    intake = Intake(tmp_path / "home", f"kafka://{kafka.bootstrap}", postgres_url, free_port(in_a_row=4))
    intake.start()
    try:
        yield intake
    finally:
        intake.stop()


def test_nothing_is_lost_and_nothing_counts_twice(intake: Intake, kafka: Kafka, postgres: Postgres, postgres_url: str) -> None:
    victims: dict[str, Callable[[], None]] = {name: partial(intake.kill, name) for name in PROCESSES}
    victims["kafka"] = partial(_crash, kafka)
    victims["postgres"] = partial(_crash, postgres)
    chance = random.Random(int(os.environ.get("SEED") or 0))
    engine = open_db(postgres_url)
    for number in range(ROUNDS):
        started = time.time()
        traffic = Traffic(f"r{number}-{chance.randrange(1 << 30)}", POLICY, EVENTS, random.Random(chance.random()))
        events = traffic.events(started)
        with ThreadPoolExecutor(2) as clients:
            telling = clients.submit(send_all, intake.events_url, events)
            answering = clients.submit(_append_turns, f"kafka://{kafka.bootstrap}", traffic)
            for name in chance.sample(sorted(victims), len(victims)):
                time.sleep(chance.uniform(0.2, 2.5))
                victims[name]()
            failures = telling.result(DRAIN_S)
            answering.result(DRAIN_S)
        until("everything is joined", partial(_settled, engine, traffic), DRAIN_S)
        _account(engine, traffic)
        print(
            f"round {number}: {len(events)} events of {len(traffic.episodes)} episodes in {time.time() - started:.0f} s; "
            f"{len(victims)} killed, {intake.restarts} restarts so far, {failures} requests tried again",
            flush=True,
        )
    engine.dispose()


def _crash(server: Kafka | Postgres) -> None:
    server.kill()
    server.start()


def _append_turns(url: str, traffic: Traffic) -> None:
    """As the gateway does: again until the log has them, so some come twice. They come while outcomes already do."""
    log = open_log(Settings(log_url=url))
    names = list(traffic.episodes)
    for start in range(0, len(names), TURNS_AT_ONCE):
        entries = [Entry(name, make_turn(episode_id=name).encode()) for name in names[start : start + TURNS_AT_ONCE]]
        until("the log takes turns", partial(_append, log, entries), DRAIN_S)
    log.close()


def _append(log: EventLog, entries: Sequence[Entry]) -> bool:
    try:
        log.append(TURNS.name, entries)
    except SlipstreamError:
        return False
    return True


def _settled(engine: Engine, traffic: Traffic) -> bool:
    joined = (
        select(func.count())
        .select_from(OutcomeRow)
        .where(col(OutcomeRow.event_id).startswith(traffic.name), OutcomeRow.disposition == Disposition.JOINED)
    )
    refused = select(func.count()).select_from(RefusalRow).where(col(RefusalRow.refusal_id).startswith(traffic.name))
    try:
        with reading(engine) as session:
            return session.exec(joined).one() >= traffic.told and session.exec(refused).one() >= len(traffic.bad)
    except Retry:
        return False


def _account(engine: Engine, traffic: Traffic) -> None:
    with reading(engine) as session:
        outcomes = session.exec(select(OutcomeRow).where(col(OutcomeRow.event_id).startswith(traffic.name))).all()
        refusals = session.exec(select(RefusalRow).where(col(RefusalRow.refusal_id).startswith(traffic.name))).all()
        episodes = session.exec(select(EpisodeRow).where(col(EpisodeRow.episode_id).startswith(traffic.name))).all()
        newest = {row.episode_id: row.revision for row in episodes}
        revisions = session.exec(select(RevisionRow).where(col(RevisionRow.episode_id).startswith(traffic.name))).all()
    expected = {event for told in traffic.episodes.values() for event in told}
    assert {row.event_id for row in outcomes} == expected and len(outcomes) == len(expected)
    assert {row.refusal_id for row in refusals} == traffic.bad and len(refusals) == len(traffic.bad)
    assert newest.keys() == traffic.episodes.keys()
    last = {row.episode_id: row for row in revisions if row.revision == newest[row.episode_id]}
    for episode_id, told in traffic.episodes.items():
        episode = Episode.model_validate(json.loads(last[episode_id].body))
        assert sorted(outcome.event_id for outcome in episode.outcomes) == sorted(told)
        assert [turn.turn_id for turn in episode.turns] == [traffic.turn_id(episode_id)]
        assert episode.closed_by == "closed"
