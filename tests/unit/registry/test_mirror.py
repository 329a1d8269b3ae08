"""MLflow shows what the ledger says, in the end; a real MLflow on SQLite, and one that is away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from contracts.checkpoint import Checkpoint
from contracts.errors import Retry
from infra.db.engine import reading
from infra.db.query import select
from infra.db.tables.registry import VersionRow
from infra.settings import Settings
from infra.tracking import Tracking
from registry.mirror import catch_up


class Away:
    def mirror(self, policy: str, version: str, state: str, aliases: Mapping[str, bool]) -> None:
        raise Retry("MLflow is away")


def mirrored(world: Any) -> dict[str, str | None]:
    with reading(world.engine) as session:
        return {row.version: row.mirrored_state for row in session.exec(select(VersionRow)).all()}


def test_mlflow_away_waits_and_rollouts_go_on(world: Any) -> None:
    version = world.to_canary()
    assert catch_up(world.engine, Away()) == 0
    assert mirrored(world) == {"tab-v0000": None, version: None}
    assert world.state(version) == "canary"


def test_tags_and_aliases_follow_the_ledger(world: Any, checkpoint_of: Callable[..., Checkpoint], tmp_path: Path) -> None:
    tracking = Tracking(Settings(home=tmp_path / "home"))
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"0")
    first, version = "tab-v0000", world.to_canary()
    tracking.register(checkpoint_of(0), weights, {})
    assert catch_up(world.engine, tracking) == 1, "the candidate is not registered yet: only that one waits"
    tracking.register(checkpoint_of(1), weights, {})
    assert catch_up(world.engine, tracking) == 1
    assert (tracking.alias("tab", "champion"), tracking.alias("tab", "candidate")) == (first, version)
    assert catch_up(world.engine, tracking) == 0

    while world.routing().candidate is not None:
        world.traffic(500, {"champion": 0.3, "candidate": 0.45})
        world.tick()
    assert catch_up(world.engine, tracking) == 2
    aliases = {alias: tracking.alias("tab", alias) for alias in ("champion", "candidate", "previous")}
    assert aliases == {"champion": version, "candidate": None, "previous": first}
    assert mirrored(world) == {first: "retired", version: "live"}
