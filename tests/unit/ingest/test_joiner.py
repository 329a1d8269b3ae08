"""The joiner: order leaves no trace, ids count once, late is late, orphans wait and are refused and may still be joined."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from contracts.episode import Episode
from contracts.outcome import Outcome, Refusal
from contracts.record import Record
from contracts.states import Disposition, EpisodeState
from infra.clock import to_ms
from infra.db.engine import open_db, reading, writing
from infra.db.query import Engine, col, select
from infra.db.tables.ingest import EpisodeRow, OutcomeRow, RefusalRow, RevisionRow
from infra.db.tables.stream import CounterRow, OutboxRow
from infra.eventlog.port import Message, Partition
from infra.stream import Delivery
from ingest.join.joiner import Joiner


def deliver(engine: Engine, joiner: Joiner, *records: Record) -> None:
    with writing(engine) as session:
        joiner.apply(session, [Delivery(Message("any", 0, 0, None, record.encode(), 0), record) for record in records])


def read_up_to(hands) -> dict[Partition, int]:
    """Nothing lies unread."""
    return {Partition(topic, 0): to_ms(hands()) for topic in ("turns", "outcomes")}


def newest(engine: Engine, episode_id: str = "ep-1") -> Episode | None:
    with reading(engine) as session:
        rows = session.exec(
            select(RevisionRow).where(RevisionRow.episode_id == episode_id).order_by(col(RevisionRow.revision).desc())
        ).all()
    return Episode.decode(rows[0].body) if rows else None


def fate(engine: Engine, event_id: str) -> tuple[str, str | None]:
    with reading(engine) as session:
        row = session.get(OutcomeRow, event_id)
        assert row is not None
        return row.disposition, row.reason


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_db(f"sqlite:///{tmp_path / 'db'}")


@pytest.fixture
def joiner(tab_policy, hands) -> Joiner:
    return Joiner({"tab": tab_policy}, hands)


def test_a_turn_with_its_outcomes_becomes_an_episode_when_it_is_closed(engine, joiner, turn_of, outcome_of):
    deliver(engine, joiner, turn_of(), outcome_of("shown", "e1"), outcome_of("accepted", "e2", at_s=2))
    assert newest(engine) is None
    deliver(engine, joiner, outcome_of("closed", "e3", at_s=3))
    episode = newest(engine)
    assert episode is not None and episode.revision == 1 and episode.closed_by == "closed"
    assert [o.event_id for o in episode.outcomes] == ["e1", "e2", "e3"]


def test_an_outcome_that_comes_before_its_turn_waits(engine, joiner, turn_of, outcome_of):
    deliver(engine, joiner, outcome_of("accepted", "e1"), outcome_of("closed", "e2"))
    assert fate(engine, "e1") == (Disposition.WAITING, None)
    deliver(engine, joiner, turn_of())
    assert fate(engine, "e1") == (Disposition.JOINED, None)
    assert newest(engine) is not None


def test_an_outcome_waits_for_the_turn_it_names_and_not_for_another_of_its_episode(engine, joiner, turn_of, outcome_of):
    deliver(engine, joiner, turn_of(n="1-0"), outcome_of("accepted", "e1", n="1-1"), outcome_of("closed", "e2", n=None))
    assert fate(engine, "e1")[0] == Disposition.WAITING
    deliver(engine, joiner, turn_of(n="1-1", at_s=1))
    assert fate(engine, "e1")[0] == Disposition.JOINED
    episode = newest(engine)
    assert episode is not None and episode.revision == 2 and len(episode.turns) == 2


def test_an_id_counts_once_whatever_else_differs(engine, joiner, turn_of, outcome_of):
    deliver(engine, joiner, turn_of(), outcome_of("accepted", "e1"), outcome_of("rejected", "e1", at_s=9))
    deliver(engine, joiner, outcome_of("accepted", "e1"), outcome_of("closed", "e2"))
    episode = newest(engine)
    assert episode is not None and [o.happening.kind for o in episode.outcomes] == ["accepted", "closed"]
    with reading(engine) as session:
        counter = session.get(CounterRow, ("tab", "repeated_events"))
    assert counter is not None and counter.count == 2


def test_news_after_closing_revises_until_the_episode_is_consumed_and_is_late_after(engine, joiner, turn_of, outcome_of):
    deliver(engine, joiner, turn_of(), outcome_of("accepted", "e1"), outcome_of("closed", "e2", at_s=2))
    deliver(engine, joiner, outcome_of("reverted", "e3", at_s=8))
    revised = newest(engine)
    assert revised is not None and revised.revision == 2 and len(revised.outcomes) == 3
    with writing(engine) as session:
        row = session.get(EpisodeRow, "ep-1")
        row.state = EpisodeState.CONSUMED
        session.add(row)
    deliver(engine, joiner, outcome_of("persisted", "e4", at_s=20))
    assert fate(engine, "e4") == (Disposition.LATE, None)
    assert newest(engine) == revised


def test_silence_closes_an_episode_after_the_quiet_window(engine, joiner, turn_of, outcome_of, hands, tab_policy):
    deliver(engine, joiner, turn_of(), outcome_of("shown", "e1"))
    assert joiner.close_quiet(engine, read_up_to(hands)) == 0
    hands.forward(tab_policy.quiet_seconds + 1)
    assert joiner.close_quiet(engine, read_up_to(hands)) == 1
    episode = newest(engine)
    assert episode is not None and episode.closed_by == "quiet"


def test_an_orphan_is_refused_after_its_window_and_joined_if_its_turn_comes_after_all(
    engine, joiner, turn_of, outcome_of, hands, tab_policy
):
    deliver(engine, joiner, outcome_of("accepted", "e1"))
    hands.forward(tab_policy.orphan_seconds + 5)
    joiner.close_quiet(engine, read_up_to(hands))
    assert fate(engine, "e1") == (Disposition.REFUSED, "no_turn")
    deliver(engine, joiner, turn_of())
    assert fate(engine, "e1") == (Disposition.JOINED, None)


def test_what_names_a_policy_that_has_no_file_is_refused_and_closed_all_the_same(engine, turn_of, outcome_of, hands, tab_policy):
    known = {name: tab_policy.model_copy(update={"name": name}) for name in ("m", "B", "x")}
    joiner, gone = Joiner(known, hands), ("a", "C", "n", "y", "Z")
    told = [(outcome_of("accepted", f"e-{name}", policy=name), turn_of(f"ep-{name}", policy=name)) for name in gone]
    deliver(engine, joiner, *(record for pair in told for record in pair))
    joiner.close_quiet(engine, read_up_to(hands))
    assert {fate(engine, f"e-{name}") for name in gone} == {(Disposition.WAITING, None)}
    hands.forward(max(tab_policy.orphan_seconds, tab_policy.quiet_seconds) + 5)
    assert joiner.close_quiet(engine, read_up_to(hands)) == len(gone)
    assert {fate(engine, f"e-{name}") for name in gone} == {(Disposition.REFUSED, "no_turn")}
    assert {newest(engine, f"ep-{name}").closed_by for name in gone} == {"quiet"}


def test_what_is_told_in_another_policys_name_touches_nothing(engine, joiner, turn_of, outcome_of):
    deliver(engine, joiner, outcome_of("rejected", "early", policy="other"), turn_of())
    deliver(
        engine, joiner, outcome_of("rejected", "after", policy="other"), outcome_of("accepted", "own"), outcome_of("closed", "c")
    )
    assert [outcome.event_id for outcome in newest(engine).outcomes] == ["c", "own"]
    assert fate(engine, "early") == fate(engine, "after") == ("waiting", None)


def test_an_id_that_two_policies_use_keeps_what_is_told_of_each_turn_whatever_came_first(engine, joiner, turn_of, outcome_of):
    tab, other = turn_of(), turn_of(n="1-1", at_s=5.0, policy="other")
    told = (outcome_of("accepted", "a"), outcome_of("accepted", "b", n="1-1", at_s=6.0, policy="other"))
    for number, order in enumerate(permutations((tab, other, *told))):
        records = [record.model_copy(update=_in_episode(record, f"ep-{number}")) for record in order]
        for record in records:
            deliver(engine, joiner, record)
        assert fate(engine, f"a-ep-{number}") == fate(engine, f"b-ep-{number}") == ("joined", None)


def _in_episode(record, episode_id: str) -> dict[str, str]:
    changes = {"episode_id": episode_id, "turn_id": record.turn_id.replace("ep-1.", f"{episode_id}.")}
    return changes | ({"event_id": f"{record.event_id}-{episode_id}"} if isinstance(record, Outcome) else {})


def test_without_consent_only_a_number_is_left(engine, joiner, hands):
    for number in range(3):
        deliver(
            engine,
            joiner,
            Refusal(refusal_id=f"w{number}", event_id=None, policy="tab", reason="no_consent", detail="", received_at=hands()),
        )
    with reading(engine) as session:
        assert session.exec(select(RefusalRow)).all() == []
        assert session.get(CounterRow, ("tab", "gone.refused.no_consent")).count == 3


def test_a_refusal_is_kept_once(engine, joiner, hands):
    refusal = Refusal(refusal_id="x", event_id="x", policy="tab", reason="bad_field", detail="d", received_at=hands())
    deliver(engine, joiner, refusal, refusal)
    deliver(engine, joiner, refusal)
    with reading(engine) as session:
        assert len(session.exec(select(RefusalRow)).all()) == 1


def test_a_future_client_clock_does_not_reorder_what_happened(engine, joiner, turn_of, outcome_of, hands):
    lying = outcome_of("accepted", "e1", at_s=1_209_600, received_at=outcome_of("shown", "x", at_s=1).received_at)
    deliver(engine, joiner, turn_of(), lying, outcome_of("reverted", "e2", at_s=5), outcome_of("closed", "e3", at_s=6))
    episode = newest(engine)
    assert episode is not None and [o.event_id for o in episode.outcomes] == ["e1", "e2", "e3"]


def test_each_revision_is_promised_to_the_topic(engine, joiner, turn_of, outcome_of):
    deliver(engine, joiner, turn_of(), outcome_of("closed", "e1"))
    deliver(engine, joiner, outcome_of("persisted", "e2", at_s=9))
    with reading(engine) as session:
        assert [row.topic for row in session.exec(select(OutboxRow)).all()] == ["episodes", "episodes"]
