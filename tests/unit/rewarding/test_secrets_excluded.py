"""Secrets, wherever they stand in an episode, keep its sample out of training, by a reason that can be counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.episode import Episode, EpisodeClosed
from contracts.states import SampleState
from infra.db.engine import open_db, reading, writing
from infra.db.query import Engine, select
from infra.db.tables.ingest import RevisionRow
from infra.db.tables.rewarding import RewardRow, SampleRow
from infra.eventlog.port import Message
from infra.stream import Delivery
from rewarding.rewarder import Rewarder
from tests.conftest import EPOCH, make_outcome, make_turn

SECRET = 'password = "hunter2-and-more"'


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = open_db(f"sqlite:///{tmp_path / 'db'}")
    yield made
    made.dispose()


def publish(engine: Engine, rewarder: Rewarder, *outcomes, revision: int = 1, **turn) -> SampleRow:
    told = tuple(make_outcome(kind, f"e{n}", happening=said) for n, (kind, said) in enumerate((("accepted", {}), *outcomes)))
    episode = Episode(
        episode_id="ep-1", policy="tab", revision=revision, subject="s", turns=(make_turn(**turn),), outcomes=told,
        closed_by="closed", closed_at=EPOCH,
    )  # fmt: skip
    pointer = EpisodeClosed(episode_id="ep-1", policy="tab", revision=revision)
    with writing(engine) as session:
        session.add(RevisionRow(episode_id="ep-1", revision=revision, policy="tab", body=episode.model_dump_json()))
        session.flush()
        rewarder.apply(session, [Delivery(Message("episodes", 0, 0, None, b"", 0), pointer)])
    with reading(engine) as session:
        return session.exec(select(SampleRow)).one()


def test_a_marked_turn_is_rewarded_and_not_trained(engine, tab_policy):
    row = publish(engine, Rewarder({"tab": tab_policy}), secrets=("github-token",))
    assert (row.state, row.reason, row.body) == (SampleState.EXCLUDED, "secrets", "")
    with reading(engine) as session:
        assert session.exec(select(RewardRow)).one().value is not None, "gates still see how the version did"


@pytest.mark.parametrize(
    "outcome",
    [
        ("follow_up", {"text": f"now use {SECRET}"}),
        ("some_newer_kind", {"note": {"deep": [SECRET]}}),
        ("some_newer_kind", {"password": "hunter2-and-more"}),
    ],
)
def test_so_is_what_somebody_wrote_afterwards(engine, tab_policy, outcome):
    row = publish(engine, Rewarder({"tab": tab_policy}), outcome)
    assert (row.state, row.reason, row.body) == (SampleState.EXCLUDED, "secrets", "")


def test_a_secret_told_later_takes_a_waiting_sample_out_and_leaves_a_claimed_one(engine, tab_policy):
    rewarder = Rewarder({"tab": tab_policy})
    assert publish(engine, rewarder).state == SampleState.READY
    row = publish(engine, rewarder, ("follow_up", {"text": SECRET}), revision=2)
    assert (row.state, row.reason, row.body, row.revision) == (SampleState.EXCLUDED, "secrets", "", 2)
    again = publish(engine, rewarder, revision=3)
    assert again.state == SampleState.EXCLUDED, "final"


def test_harmless_words_change_nothing(engine, tab_policy):
    row = publish(engine, Rewarder({"tab": tab_policy}), ("follow_up", {"text": "now rename the variable token"}))
    assert row.state == SampleState.READY and row.body
