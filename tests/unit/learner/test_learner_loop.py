"""A tick: when a cycle is due, what it leaves behind, and what it refuses."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from contracts.checkpoint import Checkpoint
from contracts.reward import Segment
from contracts.topics import CHECKPOINTS
from infra.artifacts import verify
from infra.db.engine import reading
from infra.db.query import select
from infra.db.tables.ingest import EpisodeRow
from tests.unit.learner.conftest import World, make_sample


def records(world: World) -> list[Checkpoint]:
    consumer = world.log.consumer("test", [CHECKPOINTS.name])
    messages = []
    for _ in range(50):
        messages += consumer.poll(0.1)
        if messages:
            break
    consumer.close()
    return [Checkpoint.decode(message.value) for message in messages]


def test_a_full_batch_becomes_a_sealed_version(fed: World) -> None:
    fed.learner().tick("tab")
    cycle = fed.cycles()[0]
    assert (cycle.state, cycle.version, cycle.samples, cycle.reason) == ("sealed", "tab-v0001", 32, None)
    states = fed.states()
    assert len(states["consumed"]) == 32 and len(states["ready"]) == 8
    assert states["consumed"][0] == "tab-e0", "oldest first"
    checkpoint = Checkpoint.decode(fed.checkpoints()[1].body)
    assert checkpoint.parent == "tab-v0000" and checkpoint.sample_count == 32 and checkpoint.spec == "tab@1"
    folder = Path(checkpoint.uri)
    verify(folder, checkpoint.files)
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= {file.name for file in checkpoint.files}
    AutoModelForCausalLM.from_pretrained(str(folder))
    assert [record.version for record in records(fed)] == ["tab-v0000", "tab-v0001"]
    with reading(fed.engine) as session:
        rows = session.exec(select(EpisodeRow).where(EpisodeRow.state == "consumed")).all()
    assert len(rows) == 32
    stats = json.loads(cycle.stats)
    assert stats["phase"] == "sealed" and stats["step"] == stats["steps"] == 4
    assert stats["loss"] is not None and 0 < stats["ess"] <= 1 and stats["by_lag"] == {"0": 32}
    assert checkpoint.metrics["mean_reward"] == stats["mean_reward"]


def test_the_weights_move(fed: World) -> None:
    fed.learner().tick("tab")
    old = load_file(fed.artifacts / "tab/tab-v0000/model.safetensors")
    new = load_file(fed.artifacts / "tab/tab-v0001/model.safetensors")
    assert old.keys() == new.keys()
    assert all((old[name] != new[name]).any() for name in old if "norm" not in name)


def test_nothing_runs_while_a_version_is_tried_or_waits(fed: World, segments: tuple[Segment, ...]) -> None:
    fed.learner().tick("tab")
    fed.put([make_sample(n, segments[n % 48]) for n in range(100, 140)])
    fed.learner().tick("tab")
    assert len(fed.cycles()) == 1, "the registry has not seen the new version yet"
    fed.route("tab-v0000", candidate="tab-v0001")
    fed.learner().tick("tab")
    assert len(fed.cycles()) == 1
    fed.route("tab-v0001")
    fed.learner().tick("tab")
    assert [cycle.parent for cycle in fed.cycles()] == ["tab-v0000", "tab-v0001"]


def test_time_starts_a_smaller_cycle(world: World, segments: tuple[Segment, ...]) -> None:
    learner = world.start()
    world.put([make_sample(n, segments[n]) for n in range(20)])
    learner.tick("tab")
    assert world.cycles() == []
    world.now += timedelta(hours=2)
    learner.tick("tab")
    assert [cycle.samples for cycle in world.cycles()] == [20]


def test_too_few_samples_start_nothing_however_late(world: World, segments: tuple[Segment, ...]) -> None:
    learner = world.start()
    world.put([make_sample(n, segments[n]) for n in range(15)])
    world.now += timedelta(days=2)
    learner.tick("tab")
    assert world.cycles() == []
