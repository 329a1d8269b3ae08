"""From HTTP events and captured turns to samples, through real logs and tables; two policies side by side; restarts in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from contracts.reward import Sample
from contracts.states import SampleState
from contracts.topics import ALL, EPISODES, OUTCOMES, REFUSALS, TURNS
from infra.clock import system_clock
from infra.db.engine import open_db, reading, writing
from infra.db.query import Engine, select
from infra.db.tables.rewarding import RewardPartRow, RewardRow, SampleRow
from infra.eventlog.embedded import EmbeddedLog
from infra.eventlog.port import Entry
from infra.stream import Stream
from ingest.join import joiner
from rewarding import rewarder
from tests.collector import cloud_event, collecting, send


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_db(f"sqlite:///{tmp_path / 'db'}")


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    log = EmbeddedLog(tmp_path / "log.db")
    log.ensure(ALL)
    return log


def drain(engine: Engine, log: EmbeddedLog, policies) -> None:
    """One life of the joiner and the rewarder: they start, read what is there, and end."""
    stages = (
        (joiner.GROUP, (TURNS, OUTCOMES, REFUSALS), joiner.Joiner(policies, system_clock).apply),
        (rewarder.GROUP, (EPISODES,), rewarder.Rewarder(policies).apply),
    )
    for group, topics, apply in stages:
        stream = Stream(engine, log, group, topics, apply)
        while stream.step(timeout_s=0.2, most=7):
            pass
        stream.close()


@pytest.fixture
def client(log: EmbeddedLog, tmp_path: Path) -> Iterator[TestClient]:
    with collecting(log, tmp_path, policies=("tab", "chat")) as client:
        yield client


def event(policy: str, episode: str, kind: str, n: int, **data) -> dict:
    return cloud_event(
        kind, f"{episode}-{n}", policy=policy, turnid=f"{episode}.1-0", time=f"2026-01-01T00:00:0{n}Z", data=data or None
    )


def test_two_policies_share_a_deployment_and_nothing_else(engine, log, client, tab_policy, turn_of):
    other = tab_policy.model_copy(
        update={"name": "chat", "reward": tab_policy.reward.model_copy(update={"name": "chat", "clamp": (-1.0, 0.5)})}
    )
    policies = {"tab": tab_policy, "chat": other}
    for policy in policies:
        turn = turn_of(episode_id=f"ep-{policy}", policy=policy, version=f"{policy}-v0000")
        log.append("turns", [Entry(turn.episode_id, turn.encode())])
        told = [event(policy, f"ep-{policy}", "shown", 1), event(policy, f"ep-{policy}", "accepted", 2, characters=5)]
        assert send(client, told).status_code == 202
    drain(engine, log, policies)
    closings = [event(policy, f"ep-{policy}", "closed", 3) for policy in policies]
    assert send(client, closings).status_code == 202
    drain(engine, log, policies)
    with reading(engine) as session:
        rewards = {row.policy: row for row in session.exec(select(RewardRow)).all()}
        samples = {row.policy: row for row in session.exec(select(SampleRow)).all()}
    assert (rewards["tab"].value, rewards["chat"].value) == (0.75, 0.5)
    assert (rewards["tab"].spec, rewards["chat"].spec) == ("tab@1", "chat@1")
    assert samples["tab"].lag_version == "tab-v0000" and samples["chat"].lag_version == "chat-v0000"
    sample = Sample.decode(samples["tab"].body)
    assert sample.segments[0].completion_ids == (7, 8, 2) and sample.segments[0].credit == 0.75


def test_late_persistence_changes_a_ready_sample_and_leaves_a_claimed_one(engine, log, client, tab_policy, turn_of):
    policies = {"tab": tab_policy}
    for episode in ("ep-a", "ep-b"):
        log.append("turns", [Entry(episode, turn_of(episode_id=episode).encode())])
        send(client, [event("tab", episode, "accepted", 2, characters=5), event("tab", episode, "closed", 3)])
    drain(engine, log, policies)
    with writing(engine) as session:
        row = session.get(SampleRow, "ep-b")
        row.state = SampleState.CLAIMED
        session.add(row)
    send(client, [event("tab", episode, "reverted", 5) for episode in ("ep-a", "ep-b")])
    drain(engine, log, policies)
    with reading(engine) as session:
        ready, claimed = session.get(SampleRow, "ep-a"), session.get(SampleRow, "ep-b")
        part = session.get(RewardPartRow, ("ep-b", "tab@1", "persistence"))
    assert (ready.reward, claimed.reward) == (0.5, 0.75)
    assert part.value == -1.0
    with writing(engine) as session:
        row = session.get(SampleRow, "ep-b")
        row.state = SampleState.READY
        session.add(row)
    assert rewarder.Rewarder(policies).refresh(engine) == 1
    with reading(engine) as session:
        assert session.get(SampleRow, "ep-b").reward == 0.5


def test_poison_is_buried_and_the_next_message_is_read(engine, log, client, tab_policy, turn_of):
    log.append("turns", [Entry("ep-1", b"not json"), Entry("ep-1", b"{}"), Entry("ep-1", turn_of().encode())])
    send(client, [event("tab", "ep-1", "accepted", 2, characters=5), event("tab", "ep-1", "closed", 3)])
    drain(engine, log, {"tab": tab_policy})
    assert sum(log.ends("turns.dlq").values()) == 2
    with reading(engine) as session:
        assert session.exec(select(SampleRow)).one().reward == 0.75


def test_feedback_that_comes_before_its_answer_is_joined_later_and_an_id_counts_once(engine, log, client, tab_policy, turn_of):
    policies = {"tab": tab_policy}
    accepted = event("tab", "ep-1", "accepted", 2, characters=5)
    again = {**accepted, "time": "2026-01-01T00:00:09Z"}
    assert send(client, [accepted, again]).status_code == 202, "both are taken: the joiner knows that they are one"
    drain(engine, log, policies)
    with reading(engine) as session:
        assert session.exec(select(SampleRow)).all() == []
    log.append("turns", [Entry("ep-1", turn_of().encode())])
    assert send(client, [again, event("tab", "ep-1", "closed", 3), event("tab", "ep-1", "closed", 3)]).status_code == 202
    drain(engine, log, policies)
    with reading(engine) as session:
        sample = session.exec(select(SampleRow)).one()
    assert sample.reward == 0.75, "as much as for one acceptance"
