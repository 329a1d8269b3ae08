"""The stream loop: effects exactly once, whatever dies; a zombie writes nothing; poison is buried."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.episode import EpisodeClosed
from contracts.errors import Retry
from contracts.topics import EPISODES
from infra.db.counters import count
from infra.db.engine import open_db, reading
from infra.db.query import Engine, Session
from infra.db.tables.stream import CounterRow
from infra.eventlog.embedded import EmbeddedLog
from infra.eventlog.port import Entry
from infra.stream import Delivery, Stream


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_db(f"sqlite:///{tmp_path / 'db'}")


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    log = EmbeddedLog(tmp_path / "log.db")
    log.ensure([EPISODES])
    return log


def put(log: EmbeddedLog, *numbers: int) -> None:
    records = [EpisodeClosed(episode_id=f"ep-{n}", policy="tab", revision=1) for n in numbers]
    log.append(EPISODES.name, [Entry(record.episode_id, record.encode()) for record in records])


def tally(session: Session, deliveries: Sequence[Delivery]) -> None:
    for delivery in deliveries:
        assert isinstance(delivery.record, EpisodeClosed)
        count(session, "tab", delivery.record.episode_id)


def counted(engine: Engine) -> dict[str, int]:
    from infra.db.query import select

    with reading(engine) as session:
        return {row.name: row.count for row in session.exec(select(CounterRow)).all()}


class Death(BaseException):
    """What a kill looks like from inside."""


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deaths=st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=6))
def test_each_record_has_its_effect_once_however_often_the_reader_dies(tmp_path_factory, deaths):
    folder = tmp_path_factory.mktemp("s")
    engine, log = open_db(f"sqlite:///{folder / 'db'}"), EmbeddedLog(folder / "log.db")
    log.ensure([EPISODES])
    put(log, *range(30))
    for most, in_time in deaths:

        def dying(session: Session, deliveries: Sequence[Delivery], in_time: bool = in_time) -> None:
            tally(session, deliveries)
            if in_time:
                raise Death

        stream = Stream(engine, log, "g", [EPISODES], dying)
        try:
            stream.step(0.2, most)
        except Death:
            pass
        stream.close()
    stream = Stream(engine, log, "g", [EPISODES], tally)
    while stream.step(0.2):
        pass
    stream.close()
    assert counted(engine) == {f"ep-{n}": 1 for n in range(30)}


def test_a_zombie_writes_nothing_and_goes_on_where_the_other_was(engine, log, tmp_path):
    put(log, 1)
    zombie = Stream(engine, log, "g", [EPISODES], tally)
    while not zombie.step(0.2):
        pass
    usurper = Stream(engine, EmbeddedLog(tmp_path / "log.db"), "g", [EPISODES], tally)
    put(log, 2, 3, 4, 5, 6, 7, 8, 9)
    done = 0
    for _ in range(60):
        done += usurper.step(0.05) + zombie.step(0.05)
        if sum(counted(engine).values()) == 9:
            break
    assert counted(engine) == {f"ep-{n}": 1 for n in range(1, 10)}
    usurper.close()
    zombie.close()


def test_a_batch_comes_again_after_the_database_was_away(engine, log):
    put(log, 1, 2, 3)
    away = [True]

    def sometimes(session: Session, deliveries: Sequence[Delivery]) -> None:
        if away and away.pop():
            raise Retry("the database is away")
        tally(session, deliveries)

    stream = Stream(engine, log, "g", [EPISODES], sometimes)
    with pytest.raises(Retry):
        while True:
            stream.step(0.2)
    while stream.step(0.2):
        pass
    stream.close()
    assert counted(engine) == {"ep-1": 1, "ep-2": 1, "ep-3": 1}


def test_run_stops_when_told_and_ticks_meanwhile(engine, log):
    stop, ticks = threading.Event(), []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 3:
            stop.set()

    put(log, 1)
    Stream(engine, log, "g", [EPISODES], tally).run(stop, every_s=0.01, tick=tick)
    assert len(ticks) == 3 and counted(engine) == {"ep-1": 1}


def test_the_watermark_is_now_when_nothing_is_unread_and_else_the_last_applied_message(engine, log):
    put(log, *range(40))
    stream = Stream(engine, log, "g", [EPISODES], tally)
    while not stream.step(0.2, most=1):
        assert set(stream.watermark_ms(10**15).values()) <= {0}
    seen = set(stream.watermark_ms(10**15).values())
    assert 0 in seen and 10**15 not in seen and len(seen) == 2
    while stream.step(0.2):
        pass
    assert stream.watermark_ms(10**15) == dict.fromkeys(log.ends(EPISODES.name), 10**15)
    put(log, *range(40, 80))
    assert 10**15 not in stream.watermark_ms(10**15).values()
    stream.close()


def test_the_watermark_passes_what_retention_took(engine, log):
    put(log, 1, 2, 3)
    log.trim(now_s=10**10)
    stream = Stream(engine, log, "g", [EPISODES], tally)
    assert stream.step(0.3) == 0
    assert set(stream.watermark_ms(10**15).values()) == {10**15}
    stream.close()
