"""The ledger under a race, and its properties over any order of moves."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.checkpoint import Checkpoint
from contracts.errors import IllegalMove
from contracts.states import CHECKPOINT_NEXT, CheckpointState
from infra.db.engine import reading, writing
from infra.db.query import col, select
from infra.db.tables.registry import EvalReportRow, RolloutRow, VersionRow
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
    """Each thread promotes or rolls back on what it read before the race; ten rounds from a barrier."""
    moves = {
        "live": lambda session, now: transitions.promote(session, now, WHY, "live"),
        "rolled_back": lambda session, now: transitions.throw_out(session, now, State.CANARY, WHY, "rolled_back"),
    }
    ends: list[str] = []
    for number in range(1, 11):
        version = world.to_canary() if number == 1 else _next(world, number)
        now, barrier, lost = world.routing(), threading.Barrier(2), []

        def race(name: str, now: Any = now, barrier: threading.Barrier = barrier, lost: list[str] = lost) -> None:
            barrier.wait()
            try:
                with writing(world.engine) as session:
                    moves[name](session, now)
            except LostRace:
                lost.append(name)

        threads = [threading.Thread(target=race, args=(name,)) for name in moves]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ends.append(world.state(version))
        assert len(lost) == 1 and ends[-1] in moves and ends[-1] != lost[0]
        assert world.routing().revision == now.revision + 1
        assert world.audit(version)[-1] == ("canary", ends[-1], "because")
    with reading(world.engine) as session:
        promised = session.exec(select(OutboxRow.owner).where(col(OutboxRow.owner).in_(moves))).all()
    assert sorted(promised) == sorted(ends)


def _next(world: Any, number: int) -> str:
    version = world.seal(number)
    world.tick()
    world.replica(version)
    world.report(version)
    world.tick()
    return str(version)


def test_any_order_of_moves_keeps_to_the_table(world: Any) -> None:
    """A move is done exactly when the version is where it is said to be and the table has the step."""
    names = (f"v{n}" for n in itertools.count())

    @given(st.lists(st.tuples(st.sampled_from(list(State)), st.sampled_from(list(State))), max_size=12))
    @settings(max_examples=50, deadline=None)
    def hold(moves: list[tuple[State, State]]) -> None:
        version = next(names)
        row = VersionRow(version=version, policy="tab", number=0, state=State.SEALED, since_ms=0, mirrored_state=None, body="{}")
        with writing(world.engine) as session:
            session.add(row)
        at, done = State.SEALED, []
        for before, to in moves:
            may = to in CHECKPOINT_NEXT[before]
            try:
                with writing(world.engine) as session:
                    move_version(session, "tab", version, before, to, WHY)
                assert may and at is before
                at = to
                done.append((before, to, "because"))
            except IllegalMove:
                assert not may
            except LostRace:
                assert may and at is not before
        assert world.state(version) == at
        assert world.audit(version) == done

    hold()


def test_an_old_routing_never_replaces_a_newer_one(world: Any) -> None:
    world.to_canary()
    stale = world.routing().model_copy(update={"revision": 1})
    with pytest.raises(LostRace, match="revision 3"), writing(world.engine) as session:
        transitions.begin_step(session, stale, world.policy.rollout, 1, WHY, "x")
    with reading(world.engine) as session:
        assert session.exec(select(RolloutRow.revision)).one() == 3
