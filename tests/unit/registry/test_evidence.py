"""Evidence is what the rows say, arm by arm, and nothing from beside the step."""

from __future__ import annotations

from typing import Any

from infra.db.engine import reading
from registry.evidence import Evidence, Exposure, read_step


def read(world: Any, *measures: str) -> Evidence:
    now = world.routing()
    exposure = Exposure("tab", world.policy.reward.id, now.experiment, now.step)
    with reading(world.engine) as session:
        return read_step(session, now.candidate, now.share, exposure, measures)


def test_nothing_is_nothing_and_not_zero(world: Any) -> None:
    world.to_canary()
    found = read(world, "reward", "latency_ms", "accepted")
    assert (found.candidate.requests, found.candidate.sums["reward"], found.candidate.latency(0.95)) == (0, (), None)


def test_arms_are_counted_apart_with_and_without_reward(world: Any) -> None:
    world.to_canary()
    world.traffic(200, {"champion": 1.0, "candidate": 0.0})
    world.traffic(100, {"champion": 1.0, "candidate": 0.0}, finish={"candidate": "error", "champion": "stop"}, value=None)
    found = read(world, "accepted", "latency_ms")
    one, two = found.candidate, found.champion
    assert one.requests + two.requests == 300 and one.rewarded + two.rewarded == 200
    assert one.subjects <= 10 and two.subjects <= 90 and one.finished("error") > 0 == two.finished("error")
    assert sum(s.total for s in one.sums["reward"]) == -0.25 * one.rewarded
    assert sum(s.squares for s in two.sums["reward"]) == 0.75**2 * two.rewarded
    assert sum(s.n for s in two.sums["accepted"]) == two.requests, "a part may speak where no reward could be had"
    assert len(one.latencies) == one.requests and one.latency(0.95) == 10.0


def test_neighbours_are_left_out(world: Any) -> None:
    world.to_canary()
    for changes in ({"arm": "pinned"}, {"experiment": "tab-v0777"}, {"step": 1}, {"spec": "tab@999"}, {"policy": "agent"}):
        world.traffic(50, {"champion": 0.3, "candidate": 0.3}, **changes)
    found = read(world, "accepted")
    assert found.candidate.requests == found.champion.requests == 0
