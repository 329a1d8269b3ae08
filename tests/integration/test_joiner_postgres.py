"""Two joiners at once on one PostgreSQL: no update is lost, nobody locks another out, each episode is what the rules say."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from contracts.errors import Retry
from contracts.outcome import Refusal
from contracts.policy import Policy
from contracts.record import Record
from contracts.states import Disposition
from contracts.turn import Turn
from infra.clock import to_ms
from infra.db.engine import open_db, reading, writing
from infra.db.query import Engine, select
from infra.db.tables.ingest import EpisodeRow, RefusalRow, RevisionRow
from ingest.join.joiner import Joiner
from tests.conftest import EPOCH, Hands, make_outcome, make_turn
from tests.unit.ingest.join_world import deliver, expected, read_books, read_up_to

pytestmark = pytest.mark.integration

FAR_MS = to_ms(datetime(2300, 1, 1, tzinfo=UTC))
EPISODES, WORKERS = 30, 3


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    engine = open_db(postgres_url)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("seed", range(3))
def test_episodes_whose_records_come_to_several_joiners_at_once(engine: Engine, tab_policy: Policy, seed: int) -> None:
    """Worse than any rebalance: each record goes to whichever joiner, as after an operator gave a topic more partitions."""
    dice = random.Random(seed)
    turns = [make_turn(f"ep-{n}", f"1-{m}", at_s=m) for n in range(EPISODES) for m in range(2)]
    tellings = [
        make_outcome(kind, f"ep-{n}-{kind}-{m}", f"ep-{n}", f"1-{m}", at_s=2 + at)
        for n in range(EPISODES)
        for m in range(2)
        for at, kind in enumerate(("shown", "accepted", "persisted", *(("closed",) if n % 2 and m else ())))
    ]
    told: list[Record] = [*turns, *tellings, *dice.sample(tellings, 20)]
    dice.shuffle(told)
    heaps = [told[number::WORKERS] for number in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as workers:
        retries = sum(workers.map(lambda one: work(engine, tab_policy, heaps[one], one), range(WORKERS)))
    joiner = Joiner({"tab": tab_policy}, Hands())
    joiner.close_quiet(engine, read_up_to(FAR_MS, range(WORKERS)))
    found, wanted = read_books(engine), expected(tab_policy, turns, tellings)
    assert (found.episodes, found.fates) == (wanted.episodes, wanted.fates)
    assert found.counters == {"repeated_events": 20} and retries == 0
    with reading(engine) as session:
        rows = {row.episode_id: row.revision for row in session.exec(select(EpisodeRow)).all()}
        revisions = session.exec(select(RevisionRow.episode_id, RevisionRow.revision)).all()
    assert sorted(revisions) == sorted((name, n + 1) for name, last in rows.items() for n in range(last))


def work(engine: Engine, policy: Policy, heap: Sequence[Record], lane: int) -> int:
    joiner, retries = Joiner({"tab": policy}, Hands()), 0
    for start in range(0, len(heap), 7):
        while True:
            try:
                deliver(engine, joiner, *heap[start : start + 7], lane=lane)
                joiner.close_quiet(engine, read_up_to(to_ms(EPOCH) + 1000 * start, [lane]))
                break
            except Retry:
                retries += 1
    return retries


def test_an_episode_that_goes_quiet_while_its_news_is_written_has_it_in_the_end(engine: Engine, tab_policy: Policy) -> None:
    joiner = Joiner({"tab": tab_policy}, Hands())
    deliver(engine, joiner, *(make_turn(f"ep-{n}") for n in range(40)))
    news = [make_outcome("accepted", f"e{n}", f"ep-{n}", at_s=5) for n in range(40)]

    def write() -> None:
        for outcome in news:
            deliver(engine, joiner, outcome)

    def close() -> None:
        for second in range(8, 14):
            joiner.close_quiet(engine, read_up_to(to_ms(EPOCH) + 1000 * second))

    with ThreadPoolExecutor(2) as workers:
        for done in [workers.submit(write), workers.submit(close)]:
            done.result(60)
    joiner.close_quiet(engine, read_up_to(FAR_MS))
    books = read_books(engine)
    assert len(books.episodes) == 40 and all(len(episode.outcomes) == 1 for episode in books.episodes.values())
    assert set(books.fates.values()) == {(Disposition.JOINED, None)}


def test_text_that_the_server_cannot_hold_is_kept_as_near_as_it_can(engine: Engine, tab_policy: Policy) -> None:
    joiner = Joiner({"tab": tab_policy}, Hands())
    refusal = Refusal(refusal_id="r", event_id=None, policy="tab", reason="bad", detail="a\x00b \U0001f600", received_at=EPOCH)
    text = "zero \x00, emoji \U0001f600, quote ' \" \\"
    turn = Turn.decode(make_turn(text=text).encode())
    closing = (make_outcome("follow_up", "e1", happening={"text": text}), make_outcome("closed", "e2", at_s=3))
    deliver(engine, joiner, refusal, turn, *closing)
    assert read_books(engine).episodes["ep-1"].turns[0].text == text
    assert read_books(engine).episodes["ep-1"].outcomes[0].happening.text == text
    with writing(engine) as session:
        assert session.get(RefusalRow, "r").detail == "a\N{SYMBOL FOR NULL}b \U0001f600"
