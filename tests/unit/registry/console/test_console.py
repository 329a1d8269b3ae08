"""The console over real rows: its figures are those of the rows, its page runs without the network, and it says what to do next."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from infra.db.engine import writing
from infra.db.tables.ingest import OutcomeRow, RefusalRow, TurnRow
from infra.db.tables.learner import CycleRow
from infra.db.tables.stream import CounterRow
from registry.console.app import make_console


@pytest.fixture
def console(world: Any) -> Iterator[TestClient]:
    app = make_console(world.engine, {"tab": world.policy}, 0.0, world.hands)
    with TestClient(app) as client:
        yield client


def overview(console: TestClient) -> dict[str, Any]:
    answer = console.get("/api/overview", params={"policy": "tab"})
    assert answer.status_code == 200
    return answer.json()


def test_before_anything_it_says_what_to_do_next(console: TestClient) -> None:
    found = overview(console)
    assert (found["tone"], found["rollout"], found["versions"]) == ("empty", None, [])
    assert "The learner seals the first one" in found["now"]


def test_figures_are_those_of_the_rows(console: TestClient, world: Any) -> None:
    version = world.to_canary()
    world.traffic(400, {"champion": 1.0, "candidate": 0.0}, finish={"candidate": "silence"})
    world.traffic(50, {"champion": 0.0, "candidate": 0.0}, arm="pinned")
    found = overview(console)
    by_version = {one["version"]: one["figures"] for one in found["versions"]}
    champion, candidate = by_version["tab-v0000"], by_version[version]
    assert champion["requests"] + candidate["requests"] == 400
    assert champion["accept_rate"]["value"] == 1.0 and champion["accept_rate"]["low"] < 1.0
    assert champion["reward"]["value"] == 0.75 and candidate["reward"]["value"] == -0.25
    assert (champion["silent_share"]["value"], candidate["silent_share"]["value"]) == (0.0, 1.0)
    assert champion["accepted_characters"] == 9.0
    parts = {part["name"]: part["mean"] for part in candidate["parts"]}
    assert parts == {"accepted": 0.0, "accepted_characters": 0.0, "shown": 1.0}
    assert sum(point["requests"] for point in found["series"]["points"]) == 400


def test_a_rollout_is_told_in_words_with_its_gates(console: TestClient, world: Any) -> None:
    version = world.to_canary()
    world.traffic(300, {"champion": 0.3, "candidate": 0.3})
    world.tick(2)
    found = overview(console)
    assert found["tone"] == "moving"
    assert found["now"].startswith(f"{version} answers 10% of people, tab-v0000 the rest (step 1 of 2): ")
    assert {gate["gate"] for gate in found["rollout"]["gates"]} == set(world.rollout._ramp.names)
    assert [step["stand"] for step in found["rollout"]["steps"]] == ["now", "ahead"]
    assert {one["version"]: one["share"] for one in found["versions"]} == {version: 0.1, "tab-v0000": 0.9}


def test_a_rollback_is_told_with_its_reason(console: TestClient, world: Any) -> None:
    version = world.to_canary()
    while world.routing().candidate is not None:
        world.traffic(200, {"champion": 0.3, "candidate": 0.0})
        world.tick()
    with writing(world.engine) as session:
        fields = {"policy": "tab", "version": None, "arm": "champion", "subject": "s", "started_ms": 0, "received_ms": 0}
        session.add(TurnRow(turn_id="e.1", episode_id="e", body="{}", **fields))
    found = overview(console)
    assert found["tone"] == "bad" and f"{version} was rolled back: non_inferiority.reward" in found["now"]
    assert found["rollout"]["gates_of"] == version
    assert any(gate["verdict"] == "fail" for gate in found["rollout"]["gates"])


def test_accounting_counts_each_event_once_by_what_became_of_it(console: TestClient, world: Any) -> None:
    fates = [("joined", None)] * 5 + [("late", None)] * 2 + [("refused", "orphan")] * 3 + [("waiting", None)]
    with writing(world.engine) as session:
        for n, (fate, reason) in enumerate(fates):
            fields = {"episode_id": "e", "policy": "tab", "kind": "shown", "partition_number": 0, "received_ms": 0, "body": "{}"}
            session.add(OutcomeRow(event_id=f"e{n}", disposition=fate, reason=reason, **fields))
        session.add(RefusalRow(refusal_id="r", event_id=None, policy="tab", reason="too_large", detail="", received_ms=0))
        session.add(CounterRow(policy="tab", name="turns.no_consent", count=4))
    assert overview(console)["accounting"] == {
        "joined": 5,
        "late": 2,
        "waiting": 1,
        "refused": [{"name": "orphan", "count": 3}, {"name": "too_large", "count": 1}],
        "counters": [{"name": "turns.no_consent", "count": 4}],
    }


def test_a_cycle_shows_its_numbers_and_only_those(console: TestClient, world: Any) -> None:
    with writing(world.engine) as session:
        session.add(
            CycleRow(
                cycle_id="c1",
                policy="tab",
                state="skipped",
                fence=1,
                parent="tab-v0000",
                version="tab-v0001",
                samples=7,
                reason="kl",
                stats='{"kl": 0.8, "loss": null, "note": "x", "clipped": NaN}',
                started_ms=0,
                ended_ms=None,
            )
        )
    (cycle,) = overview(console)["cycles"]
    assert cycle["stats"] == {"kl": 0.8} and cycle["reason"] == "kl"


def test_an_unknown_policy_is_answered_with_the_known_ones(console: TestClient) -> None:
    answer = console.get("/api/overview", params={"policy": "chat"})
    assert answer.status_code == 404 and answer.json()["detail"] == "no policy is called 'chat'; there are: tab"


def test_the_page_needs_nothing_from_elsewhere_and_never_writes_markup(console: TestClient) -> None:
    page = console.get("/")
    assert page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
    named = re.findall(r'(?:src|href)="([^"#][^"]*)"', page.text)
    files = [name for name in named if name.startswith("/page/")] + ["/page/draw.js"]
    assert not [name for name in named if not name.startswith(("/page/", "/api/", "data:,"))]
    for file in files:
        text = console.get(file).text
        assert text and not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    assert console.get("/page/app.py").status_code == 404
    assert console.get("/health").json() == {"status": "ok"}


def test_answers_fast_from_the_last_reading(world: Any) -> None:
    world.to_canary()
    world.traffic(3000, {"champion": 0.3, "candidate": 0.3})
    with TestClient(make_console(world.engine, {"tab": world.policy}, 0.5)) as client:
        overview(client)
        took_s = []
        for _ in range(5):
            began = time.perf_counter()
            overview(client)
            took_s.append(time.perf_counter() - began)
        assert min(took_s) < 0.1
