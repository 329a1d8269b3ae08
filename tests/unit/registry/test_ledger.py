"""The ledger under a race, and its properties over any order of moves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.checkpoint import Checkpoint
from contracts.errors import IllegalMove
from contracts.states import CHECKPOINT_NEXT, CheckpointState
from infra.db.engine import open_db, reading, writing
from infra.db.query import func, select
from infra.db.tables.registry import AuditRow, EvalReportRow, RolloutRow, VersionRow
from infra.db.tables.stream import OutboxRow
from registry import transitions
from registry.ledger import LostRace, Why, enter, keep_report, move_version

State = CheckpointState
WHY = Why("tester", "because", 1_000)


def test_a_checkpoint_enters_once(world: Any, checkpoint_of: Callable[..., Checkpoint]) -> None:
    with writing(world.engine) as session:
        assert enter(session, checkpoint_of(0), 1)
        assert not enter(session, checkpoint_of(0), 2)
    assert world.audit("tab-v0000") == [(None, "sealed", "sealed")]


def test_a_report_that_comes_twice_is_kept_once(world: Any, report_of: Callable[..., Any]) -> None:
    for error in (None, "second thoughts", "second thoughts"):
        with writing(world.engine) as session:
            keep_report(session, report_of("tab-v0001", error=error))
    with reading(world.engine) as session:
        (row,) = session.exec(select(EvalReportRow)).all()
    assert "second thoughts" in row.body


def test_of_two_who_move_at_once_one_loses_and_leaves_nothing(world: Any) -> None:
    """Each thread promotes and rolls back on what it read before the race; fifteen rounds from a barrier."""
    for number in range(1, 16):
        version = world.to_canary() if number == 1 else _next(world, number)
        now = world.routing()
        barrier = threading.Barrier(2)
        lost: list[str] = []

        def race(name: str, act: Callable[..., Any], now: Any = now, barrier: Any = barrier, lost: list[str] = lost) -> None:
            barrier.wait()
            try:
                with writing(world.engine) as session:
                    act(session, now)
            except LostRace:
                lost.append(name)

        up = lambda session, now: transitions.promote(session, now, WHY, "up")  # noqa: E731
        down = lambda session, now: transitions.throw_out(session, now, State.CANARY, WHY, "down")  # noqa: E731
        threads = [threading.Thread(target=race, args=pair) for pair in (("up", up), ("down", down))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(lost) == 1
        assert world.state(version) == ("rolled_back" if lost == ["up"] else "live")
        assert world.routing().revision == now.revision + 1
        with reading(world.engine) as session:
            assert session.exec(select(func.count()).select_from(OutboxRow).where(OutboxRow.owner == lost[0])).one() == 15 - _won(
                world, lost[0], number
            )


def _won(world: Any, owner: str, rounds: int) -> int:
    """Promises that this owner does not have: the rounds it lost and those still to come."""
    with reading(world.engine) as session:
        return 15 - session.exec(select(func.count()).select_from(OutboxRow).where(OutboxRow.owner == owner)).one()


def _next(world: Any, number: int) -> str:
    version = world.seal(number)
    world.tick()
    world.replica(version)
    world.report(version)
    world.tick()
    return str(version)


@given(st.lists(st.tuples(st.sampled_from(list(State)), st.sampled_from(list(State))), max_size=12))
def test_any_order_of_moves_keeps_to_the_table(moves: list[tuple[State, State]]) -> None:
    """A move is done exactly when the version is where it is said to be and the table has the step."""
    engine = open_db("sqlite:///")
    with writing(engine) as session:
        session.add(
            VersionRow(version="v", policy="tab", number=0, state=State.SEALED, since_ms=0, mirrored_state=None, body="{}")
        )
    at, done = State.SEALED, 0
    for before, to in moves:
        may = to in CHECKPOINT_NEXT[before]
        try:
            with writing(engine) as session:
                move_version(session, "tab", "v", before, to, WHY)
            assert may and at is before
            at, done = to, done + 1
        except IllegalMove:
            assert not may
        except LostRace:
            assert may and at is not before
    with reading(engine) as session:
        assert session.exec(select(VersionRow.state)).one() == at
        assert session.exec(select(func.count()).select_from(AuditRow)).one() == done
    engine.dispose()


def test_an_old_routing_never_replaces_a_newer_one(world: Any) -> None:
    world.to_canary()
    stale = world.routing().model_copy(update={"revision": 1})
    with pytest.raises(LostRace, match="revision 3"), writing(world.engine) as session:
        transitions.begin_step(session, stale, world.policy.rollout, 1, WHY, "x")
    with reading(world.engine) as session:
        assert session.exec(select(RolloutRow.revision)).one() == 3
