"""Which versions hold whose words, and two policies that do not know of each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from contracts.reward import Segment
from infra.db.engine import reading
from infra.db.query import select
from infra.db.tables.rewarding import SampleRow
from learner.lineage import ancestors, touched_by
from tests.unit.learner.conftest import World, make_policy, make_sample


def test_a_person_is_found_in_versions_and_their_descendants(world: World, segments: tuple[Segment, ...]) -> None:
    world.start()
    for cycle, subject in ((1, "ann"), (2, "bob"), (3, "cat")):
        world.put([make_sample(100 * cycle + n, segments[n % 48], subject=subject) for n in range(32)])
        world.learner().tick("tab")
        # The second is thrown out, so the third descends from the first.
        world.route("tab-v0001" if cycle == 2 else f"tab-v000{cycle}")
    with reading(world.engine) as session:
        assert ancestors(session, "tab-v0003") == ["tab-v0001", "tab-v0000"]
        assert ancestors(session, "tab-v0000") == []
        assert touched_by(session, "ann") == ["tab-v0001", "tab-v0002", "tab-v0003"]
        assert touched_by(session, "bob") == ["tab-v0002"]
        assert touched_by(session, "cat") == ["tab-v0003"]
        assert touched_by(session, "nobody") == []


def test_two_policies_side_by_side(world: World, base: Path, segments: tuple[Segment, ...]) -> None:
    world.policies["chat"] = make_policy(base, "chat", cycle_samples=16, loss={"name": "grpo"}, advantage={"name": "group_mean"})
    for policy in ("tab", "chat"):
        world.start(policy)
    world.put([make_sample(n, segments[n % 48], policy) for n in range(40) for policy in ("tab", "chat")])
    learner = world.learner()
    for policy in ("tab", "chat"):
        learner.tick(policy)
    assert [(row.policy, row.version, row.samples) for row in world.cycles()] == [
        ("chat", "chat-v0001", 16),
        ("tab", "tab-v0001", 32),
    ]
    with reading(world.engine) as session:
        rows = session.exec(select(SampleRow).where(SampleRow.state == "consumed")).all()
    assert {(row.policy, row.cycle_id) for row in rows} == {("tab", "cycle-tab-v0001"), ("chat", "cycle-chat-v0001")}
    assert {path.name for path in (world.artifacts / "chat").glob("chat-v*")} == {"chat-v0000", "chat-v0001"}


def test_the_process_explains_itself(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-m", "learner", "teach"], cwd=root, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 2 and "expected: python -m learner worker | beat | bootstrap | import" in done.stderr
