"""The database layer on a real PostgreSQL: one schema, the same answers as SQLite, and what only a server can do to it."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from contracts.errors import Retry, StartError
from contracts.outcome import Refusal
from contracts.topics import REFUSALS
from infra.db import lease, outbox
from infra.db.counters import count, count_all
from infra.db.engine import open_db, reading, writing
from infra.db.insert import insert_all, insert_new, upsert
from infra.db.migrations import VERSION_TABLE
from infra.db.query import Engine, col, select
from infra.db.tables.ingest import RefusalRow
from infra.db.tables.rewarding import RewardPartRow
from infra.db.tables.stream import CounterRow, LeaseRow, OutboxRow
from infra.eventlog.embedded import EmbeddedLog
from tests.conftest import EPOCH
from tests.integration.postgres import Postgres
from tests.schema import differences, migrate_from_nothing, shape

pytestmark = pytest.mark.integration


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    engine = open_db(postgres_url)
    yield engine
    engine.dispose()


def test_the_revisions_and_the_tables_make_the_same_schema(postgres: Postgres) -> None:
    made, migrated = open_db(postgres.new_database()), migrate_from_nothing(postgres.new_database())
    assert differences(made) == differences(migrated) == []
    assert shape(made) == shape(migrated)


def test_processes_that_start_at_once_agree(postgres_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    gate = spawn.Barrier(4)
    processes = [spawn.Process(target=_open_together, args=(postgres_url, gate)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
    assert [process.exitcode for process in processes] == [0] * 4
    assert differences(open_db(postgres_url)) == []


def test_a_database_of_a_newer_release_is_refused_in_one_sentence(engine: Engine, postgres_url: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StartError, match="9999, which this release does not know"):
        open_db(postgres_url)


def test_a_url_may_name_postgresql_in_any_usual_way(postgres_url: str) -> None:
    for scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        open_db(f"{scheme}://{postgres_url.partition('://')[2]}").dispose()


def test_an_insert_answers_what_is_new_and_a_repeat_changes_nothing(engine: Engine) -> None:
    with writing(engine) as session:
        assert insert_new(session, CounterRow, [_counter("b", 1), _counter("a", 1), _counter("b", 7)]) == {"tab"}
        assert insert_new(session, LeaseRow, [LeaseRow(name=n, holder="h", fence=1, expires_ms=0) for n in "cab"]) == {
            "a",
            "b",
            "c",
        }
        assert insert_new(session, LeaseRow, [LeaseRow(name=n, holder="x", fence=1, expires_ms=0) for n in "bd"]) == {"d"}
        assert insert_new(session, LeaseRow, []) == set()
    with reading(engine) as session:
        assert {row.name: row.holder for row in session.exec(select(LeaseRow)).all()} == dict.fromkeys("abc", "h") | {"d": "x"}


def test_values_come_back_as_they_went(engine: Engine) -> None:
    """Whole numbers among fractions, nothing at all, quotes, backslashes, line ends, every plane of Unicode."""
    awkward = ["plain", "", 'a "quoted" \\ {word}', "NULL", "line\nend\ttab", "naïve \U0001f600 \u2028", "{,}"]
    values = [0.5, 2, None, -1e300, 0, 1, 3]
    with writing(engine) as session:
        rows = [
            {"episode_id": name or "none", "spec": "s", "name": name, "value": value, "weight": 1}
            for name, value in zip(awkward, values, strict=True)
        ]
        upsert(session, RewardPartRow, rows, ("value",))
        upsert(session, RewardPartRow, [{**rows[0], "value": 9.5}], ("value",))
        insert_all(session, OutboxRow, [OutboxRow(owner="o", topic="t", record_key=None, value=bytes(range(256)))] * 3)
    with reading(engine) as session:
        found = {row.name: row.value for row in session.exec(select(RewardPartRow)).all()}
        assert found == dict(zip(awkward, [9.5, *values[1:]], strict=True))
        rows = session.exec(select(OutboxRow).order_by(col(OutboxRow.outbox_id))).all()
    assert [row.value for row in rows] == [bytes(range(256))] * 3 and len({row.outbox_id for row in rows}) == 3


def test_outbox_rows_keep_the_order_in_which_they_were_posted(engine: Engine) -> None:
    with writing(engine) as session:
        outbox.post_all(session, "o", REFUSALS, [_refusal(str(n)) for n in range(2000)])
    with reading(engine) as session:
        keys = session.exec(select(OutboxRow.record_key).order_by(col(OutboxRow.outbox_id))).all()
    assert keys == [str(n) for n in range(2000)]


def test_writers_of_the_same_keys_in_any_order_never_lock_each_other_out(engine: Engine) -> None:
    names = [f"n{number}" for number in range(40)]

    def work(reverse: bool) -> None:
        for turn in range(25):
            ordered = names[::-1] if reverse else names
            with writing(engine) as session:
                insert_new(session, RefusalRow, [_refusal_row(f"{turn}-{name}") for name in ordered])
                count_all(session, {("tab", name): 1 for name in ordered})

    _at_once(lambda: work(False), lambda: work(True), lambda: work(False))
    with reading(engine) as session:
        assert {row.count for row in session.exec(select(CounterRow)).all()} == {75}
        assert len(session.exec(select(RefusalRow.refusal_id)).all()) == 25 * 40


def test_a_deadlock_is_a_retry_for_one_and_nothing_for_the_other(engine: Engine) -> None:
    with writing(engine) as session:
        count_all(session, {("tab", "a"): 1, ("tab", "b"): 1})
    meet = threading.Barrier(2)
    retried = []

    def cross(first: str, second: str) -> None:
        try:
            with writing(engine) as session:
                count(session, "tab", first)
                meet.wait(60)
                count(session, "tab", second)
        except Retry as retry:
            retried.append(str(retry))

    _at_once(lambda: cross("a", "b"), lambda: cross("b", "a"))
    assert len(retried) == 1 and "deadlock detected" in retried[0]
    with reading(engine) as session:
        assert {row.count for row in session.exec(select(CounterRow)).all()} == {2}


def test_a_serialization_failure_is_a_retry(engine: Engine) -> None:
    with writing(engine) as session:
        count(session, "tab", "a")
    serial = engine.execution_options(isolation_level="SERIALIZABLE")
    with pytest.raises(Retry, match="could not serialize"), writing(serial) as slow:
        slow.exec(select(CounterRow)).all()
        with writing(serial) as quick:
            count(quick, "tab", "a")
        count(slow, "tab", "a")


def test_of_several_that_want_a_lease_one_gets_it(engine: Engine) -> None:
    fences: list[int | None] = []

    def want(holder: str) -> None:
        with writing(engine) as session:
            fences.append(lease.acquire(session, "cycle", holder, now_ms=0, ttl_ms=1000))

    _at_once(*(lambda name=name: want(name) for name in "abcd"))  # type: ignore[misc]
    assert sorted(fences, key=str) == [1, None, None, None]


def test_two_that_publish_one_outbox_publish_each_record_once(engine: Engine, tmp_path) -> None:
    log = EmbeddedLog(tmp_path / "log.db")
    log.ensure([REFUSALS])
    with writing(engine) as session:
        outbox.post_all(session, "o", REFUSALS, [_refusal(str(n)) for n in range(5000)])
    _at_once(*[lambda: outbox.flush(engine, log, "o")] * 3)
    outbox.flush(engine, log, "o")
    assert sum(log.ends(REFUSALS.name).values()) == 5000
    log.close()


def test_a_look_is_of_one_moment(engine: Engine) -> None:
    with reading(engine) as look:
        assert look.exec(select(CounterRow)).all() == []
        with writing(engine) as session:
            count(session, "tab", "a")
        assert look.exec(select(CounterRow.count)).all() == []


def test_a_connection_that_was_cut_is_a_retry_and_the_next_one_works(engine: Engine) -> None:
    with pytest.raises(Retry), writing(engine) as session:
        pid = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
        with engine.connect() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        count(session, "tab", "a")
    with writing(engine) as session:
        count(session, "tab", "a")


def test_a_killed_server_is_a_retry_and_keeps_what_was_committed(postgres: Postgres, engine: Engine) -> None:
    if not postgres.ours:
        pytest.skip("this server was not started by the tests, so it is not theirs to kill")
    with writing(engine) as session:
        count(session, "tab", "kept")
    with pytest.raises(Retry), writing(engine) as session:
        count(session, "tab", "lost")
        postgres.kill()
        count(session, "tab", "lost")
    with pytest.raises(Retry), writing(engine) as session:
        count(session, "tab", "lost")
    postgres.start()
    with writing(engine) as session:
        assert session.exec(select(CounterRow.name)).all() == ["kept"]


def _at_once(*tasks: Callable[[], object]) -> None:
    with ThreadPoolExecutor(len(tasks)) as threads:
        for done in [threads.submit(task) for task in tasks]:
            done.result(100)


def _counter(name: str, number: int) -> CounterRow:
    return CounterRow(policy="tab", name=name, count=number)


def _refusal(name: str) -> Refusal:
    return Refusal(refusal_id=name, event_id=None, policy="tab", reason="r", detail="", received_at=EPOCH)


def _refusal_row(name: str) -> RefusalRow:
    return RefusalRow(refusal_id=name, event_id=None, policy="tab", reason="r", detail="", received_ms=0)


def _open_together(url: str, gate) -> None:
    gate.wait()
    open_db(url)
