"""A learner may die between any two of its steps: no sample is lost, and none is trained into the lineage twice."""

from __future__ import annotations

import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.checkpoint import Checkpoint
from contracts.reward import Segment
from contracts.topics import CHECKPOINTS
from infra.artifacts import verify
from infra.db.engine import open_db, reading
from infra.db.query import select
from infra.db.tables.learner import CycleRow
from infra.db.tables.rewarding import SampleRow
from infra.eventlog.embedded import EmbeddedLog
from tests.unit.learner.conftest import World, make_policy, make_sample

POINTS = ("claimed", "loading", "training", "measuring", "sealing", "files", "committing", "sealed")


class Died(BaseException):
    """As SIGKILL: nothing in the learner catches it."""


def die_at(point: str):  # type: ignore[no-untyped-def]
    def announce(reached: str) -> None:
        if reached == point:
            raise Died(point)

    return announce


def run_until_done(world: World) -> None:
    world.now += timedelta(minutes=2)
    world.learner().tick("tab")


def check(world: World) -> None:
    states = world.states()
    assert "claimed" not in states, "nothing is left in a cycle that does not run"
    with reading(world.engine) as session:
        cycles = {row.cycle_id: row for row in session.exec(select(CycleRow)).all()}
        consumed = session.exec(select(SampleRow).where(SampleRow.state == "consumed")).all()
    by_cycle = Counter(row.cycle_id for row in consumed)
    sealed = {row.cycle_id: row.samples for row in cycles.values() if row.state == "sealed"}
    assert dict(by_cycle) == sealed, "what is consumed is exactly what sealed cycles hold"
    versions = [row.version for row in cycles.values()]
    assert len(set(versions)) == len(versions), "a version name is never used twice"
    made = {row.version for row in world.checkpoints() if row.number > 0}
    assert made == {row.version for row in cycles.values() if row.state == "sealed"}
    for row in world.checkpoints():
        checkpoint = Checkpoint.decode(row.body)
        verify(Path(checkpoint.uri), checkpoint.files)


@pytest.mark.parametrize("point", POINTS)
def test_death_at_each_point(fed: World, point: str) -> None:
    with pytest.raises(Died):
        fed.learner(die_at(point)).tick("tab")
    run_until_done(fed)
    check(fed)
    assert len(fed.states()["consumed"]) == 32 and len(fed.states()["ready"]) == 8
    published = sum(fed.log.ends(CHECKPOINTS.name).values())
    assert published == 2, "each sealed version reached the topic"


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(deaths=st.lists(st.sampled_from([*POINTS, None]), min_size=1, max_size=4))
def test_any_series_of_deaths(base: Path, segments: tuple[Segment, ...], deaths: list[str | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        policy = make_policy(base, cycle_samples=16, min_samples=16, minibatch=16)
        world = World(home, open_db(f"sqlite:///{home / 'db.sqlite'}"), EmbeddedLog(home / "log.db"), {"tab": policy})
        world.start()
        world.put([make_sample(n, segments[n % 48]) for n in range(48)])
        for point in deaths:
            world.now += timedelta(minutes=2)
            try:
                world.learner(die_at(point) if point else lambda reached: None).tick("tab")
            except Died:
                pass
            world.route(max((row.version for row in world.checkpoints()), default="tab-v0000"))
        run_until_done(world)
        check(world)
        world.engine.dispose()
        world.log.close()


def test_a_learner_that_lost_its_lease_writes_nothing(fed: World) -> None:
    """It slept through its lease (a stopped machine), another took over and finished; then it wakes and wants to seal."""
    woken = []

    def sleep_through(point: str) -> None:
        if point == "files" and not woken:
            woken.append(point)
            fed.now += timedelta(minutes=5)
            fed.learner().tick("tab")

    fed.learner(sleep_through).tick("tab")
    check(fed)
    assert [(row.version, row.state) for row in fed.cycles()] == [("tab-v0001", "abandoned"), ("tab-v0002", "sealed")]
    assert len(fed.states()["consumed"]) == 32


def test_samples_deleted_meanwhile_are_in_no_checkpoint(fed: World) -> None:
    """A person asked to be forgotten while their words were being trained on."""
    from infra.db.engine import writing
    from infra.db.query import delete

    def forget(point: str) -> None:
        if point == "measuring":
            with writing(fed.engine) as session:
                session.execute(delete(SampleRow).where(SampleRow.subject == "person-3"))  # type: ignore[arg-type]

    fed.learner(forget).tick("tab")
    assert [row.state for row in fed.cycles()] == ["abandoned"]
    assert "3" not in {row.version[-1] for row in fed.checkpoints()} and len(fed.checkpoints()) == 1
    fed.now += timedelta(hours=2)
    fed.learner().tick("tab")
    check(fed)
    assert fed.cycles()[-1].state == "sealed"


def test_asked_to_stop_it_gives_the_samples_back(fed: World) -> None:
    import threading

    stop = threading.Event()
    fed.learner(lambda point: stop.set() if point == "training" else None, stop).tick("tab")
    assert [(row.state, row.reason) for row in fed.cycles()] == [("abandoned", "stopped")]
    assert len(fed.states()["ready"]) == 40
    fed.learner().tick("tab")
    assert fed.cycles()[-1].state == "sealed", "being stopped is no failure: no pause before the next try"


def test_a_failure_is_tried_again_after_pauses_that_double(fed: World) -> None:
    """The parent's file was damaged: every try fails, and they must not follow each other without end."""
    weights = fed.artifacts / "tab/tab-v0000/model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-8] + b"damaged!")
    tries = []
    for second in range(0, 75, 5):
        fed.learner().tick("tab")
        tries.append((second, len(fed.cycles())))
        fed.now += timedelta(seconds=5)
    grown = [second for (second, count), (_, before) in zip(tries[1:], tries, strict=False) if count > before]
    assert tries[0][1] == 1 and grown == [10, 30, 70]
    assert "other bytes than were sealed" in (fed.cycles()[0].reason or "")
    assert len(fed.states()["ready"]) == 40
    weights.write_bytes(whole)
    fed.now += timedelta(minutes=5)
    fed.learner().tick("tab")
    assert fed.cycles()[-1].state == "sealed"
