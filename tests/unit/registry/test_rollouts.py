"""Whole rollouts over a real database: from sealed to live, to rejected, to rolled back, and what goes with each move."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from contracts.policy import Policy
from contracts.rollout import Rollout
from infra.db.engine import reading
from infra.db.query import select
from infra.db.tables.registry import AuditRow, GateRow
from infra.db.tables.stream import OutboxRow

EQUAL = {"champion": 0.3, "candidate": 0.3}
BETTER = {"champion": 0.3, "candidate": 0.45}
AWFUL = {"champion": 0.3, "candidate": 0.02}


def drive(world: Any, accept: dict[str, float], most: int = 60, per_tick: int = 200, **changes: Any) -> None:
    for _ in range(most):
        if world.routing().candidate is None:
            return
        world.traffic(per_tick, accept, **changes)
        world.tick()


def test_the_first_version_goes_live_at_once(world: Any) -> None:
    version = world.seal(0)
    world.tick()
    assert world.routing() == Rollout(policy="tab", revision=1, champion=version, reason="bootstrap", at=world.routing().at)
    assert world.audit(version) == [(None, "sealed", "sealed"), ("sealed", "bench", "bootstrap"), ("bench", "live", "bootstrap")]


def test_a_later_version_alone_waits_for_the_first(world: Any) -> None:
    version = world.seal(1)
    world.tick(3)
    assert world.routing() is None and world.state(version) == "sealed"


def test_from_sealed_to_live(world: Any) -> None:
    first, version = world.seal(0), world.seal(1)
    world.tick(2)
    bench = world.routing()
    assert (bench.candidate, bench.candidate_state, bench.share, bench.step) == (version, "bench", 0.0, None)
    world.tick(3)
    assert world.state(version) == "bench", "neither loaded nor reported"
    world.report(version)
    world.tick()
    assert world.state(version) == "bench", "not loaded"
    world.replica(version)
    world.tick()
    canary = world.routing()
    assert (canary.candidate_state, canary.step, canary.share, canary.experiment) == ("canary", 0, 0.1, version)
    drive(world, BETTER)
    done = world.routing()
    assert (done.champion, done.candidate, done.share) == (version, None, 0.0)
    assert (world.state(version), world.state(first)) == ("live", "retired")
    assert [after for _, after, _ in world.audit(version)] == ["sealed", "bench", "canary", "canary", "live"]
    assert {gate for step, gate in world.gates(version) if step == 1} == {gate for step, gate in world.gates(version) if step == 0}


def test_a_bad_version_is_rolled_back_before_the_minimums_and_takes_its_samples_along(world: Any) -> None:
    version = world.to_canary()
    for name, made_by, state in (("bad", version, "ready"), ("good", "tab-v0000", "ready"), ("gone", version, "consumed")):
        world.sample(name, made_by, state)
    drive(world, AWFUL, per_tick=40)
    assert world.state(version) == "rolled_back"
    assert world.routing().champion == "tab-v0000" and world.routing().candidate is None
    assert world.samples() == {"bad": ("quarantined", "rolled_back"), "good": ("ready", None), "gone": ("consumed", None)}
    why = world.audit(version)[-1][2]
    assert why.startswith("non_inferiority.reward: reward differs by -0.")
    with reading(world.engine) as session:
        evidence = json.loads(session.exec(select(AuditRow.evidence).where(AuditRow.after == "rolled_back")).one())
    assert evidence["candidate_requests"] <= 150
    assert {gate["gate"]: gate["verdict"] for gate in evidence["gates"]}["non_inferiority.reward"] == "fail"


def test_samples_that_arrive_after_the_rollback_are_quarantined_too(world: Any) -> None:
    version = world.to_canary()
    drive(world, AWFUL, per_tick=100)
    world.sample("late", version)
    world.tick(10)
    assert world.samples()["late"] == ("quarantined", "rolled_back")


def test_a_version_that_answers_empty_is_rolled_back_by_the_guardrail(world: Any) -> None:
    version = world.to_canary()
    drive(world, EQUAL, per_tick=40, finish={"candidate": "empty"}, value=None)
    assert world.state(version) == "rolled_back"
    assert world.audit(version)[-1][2].startswith("guardrail.empty: 100.0% of")


def test_a_version_that_no_gateway_can_load_is_rejected_with_the_gateways_sentence(world: Any) -> None:
    world.seal(0)
    version = world.seal(1)
    world.tick(2)
    world.replica(version, "failed", "model.safetensors has other bytes than were sealed")
    world.tick()
    assert world.state(version) == "rejected" and world.routing().candidate is None
    assert world.audit(version)[-1][2] == "it could not be loaded: model.safetensors has other bytes than were sealed (gateway-1)"


def test_a_version_that_fails_its_bench_is_rejected(world: Any) -> None:
    world.seal(0)
    version = world.seal(1)
    world.tick(2)
    world.replica(version)
    world.report(version, silent=0.99)
    world.sample("benched", version)
    world.tick()
    assert world.state(version) == "rejected"
    assert world.audit(version)[-1][2] == "bench_floor.smoke: silent is 0.99, the ceiling is 0.95"
    assert world.samples()["benched"] == ("quarantined", "rejected")


def test_a_bench_that_never_answers_is_rejected_at_its_deadline(world: Any) -> None:
    world.seal(0)
    version = world.seal(1)
    world.tick(2)
    world.replica(version)
    world.hands.forward(61)
    world.tick()
    assert world.state(version) == "rejected" and "has not reported yet" in world.audit(version)[-1][2]


def test_no_traffic_holds_until_the_deadline_and_is_never_a_promotion(world: Any) -> None:
    version = world.to_canary()
    world.tick(20)
    assert world.state(version) == "canary" and world.routing().step == 0
    assert world.gates(version)[0, "non_inferiority.reward"] == "unsure"
    world.hands.forward(90)
    world.tick()
    assert world.state(version) == "rolled_back" and "undecided after 90 s at 10%" in world.audit(version)[-1][2]


def test_traffic_that_stops_after_the_first_step_does_not_carry_the_second(world: Any) -> None:
    """Each step is judged on its own: what was seen at 10 % says nothing at 50 %."""
    version = world.to_canary()
    while world.routing().step == 0:
        world.traffic(400, BETTER)
        world.tick()
    world.tick(30)
    assert world.state(version) == "canary" and world.routing().step == 1
    world.hands.forward(90)
    world.tick()
    assert world.state(version) == "rolled_back"


def test_pinned_turns_and_other_experiments_are_no_evidence(world: Any) -> None:
    version = world.to_canary()
    world.traffic(300, AWFUL, arm="pinned")
    world.traffic(300, AWFUL, experiment="tab-v0777")
    world.traffic(300, AWFUL, step=7)
    world.traffic(300, AWFUL, spec="tab@999")
    world.tick(3)
    assert world.state(version) == "canary"
    assert world.gates(version)[0, "non_inferiority.reward"] == "unsure"


def test_sealed_versions_queue_oldest_first_and_one_at_a_time(world: Any) -> None:
    world.to_canary()
    second, third = world.seal(2), world.seal(3)
    world.tick(3)
    assert (world.state(second), world.state(third)) == ("sealed", "sealed")
    drive(world, AWFUL, per_tick=200)
    world.tick()
    assert world.routing().candidate == second and world.state(third) == "sealed"


def test_a_candidate_is_judged_against_the_champion_of_now_whoever_its_parent_is(world: Any) -> None:
    world.to_canary()
    second = world.seal(2)
    drive(world, AWFUL, per_tick=200)
    world.tick()
    world.replica(second)
    world.report(second)
    world.tick()
    drive(world, BETTER)
    assert world.state(second) == "live" and world.state("tab-v0001") == "rolled_back"


def test_every_change_of_routing_is_promised_once_with_the_next_revision(world: Any) -> None:
    world.to_canary()
    drive(world, BETTER)
    with reading(world.engine) as session:
        promised = [Rollout.decode(row.value) for row in session.exec(select(OutboxRow)).all()]
    assert [rollout.revision for rollout in promised] == [1, 2, 3, 4, 5]
    assert promised[-1] == world.routing()


def test_an_unchanged_verdict_is_not_written_more_than_twice_a_second(world: Any) -> None:
    version = world.to_canary()
    seen = set()
    for _ in range(20):
        world.tick(seconds=0.1)
        with reading(world.engine) as session:
            seen.add(max(session.exec(select(GateRow.at_ms).where(GateRow.version == version)).all()))
    assert len(seen) <= 5


def test_a_restarted_controller_goes_on_where_the_other_stopped(world: Any, world_of: Callable[..., Any]) -> None:
    version = world.to_canary()
    world.traffic(300, BETTER)
    world.tick()
    other = world_of(world.policy, "two")
    before = other.routing()
    other.tick()
    assert other.routing() == before, "the first still holds the lease"
    world.rollout.let_go()
    other._episodes = 1_000_000
    drive(other, BETTER)
    assert other.state(version) == "live"


def test_two_policies_side_by_side(world: Any, world_of: Callable[..., Any], tab_policy: Policy) -> None:
    other = world_of(tab_policy.model_copy(update={"name": "agent"}), "one")
    bad, good = world.to_canary(), other.to_canary()
    for _ in range(40):
        if world.routing().candidate is None and other.routing().candidate is None:
            break
        for one, accept in ((world, AWFUL), (other, BETTER)):
            if one.routing().candidate is not None:
                one.traffic(200, accept)
            one.tick()
    assert (world.state(bad), other.state(good)) == ("rolled_back", "live")
    assert (world.routing().champion, other.routing().champion) == ("tab-v0000", "agent-v0001")
