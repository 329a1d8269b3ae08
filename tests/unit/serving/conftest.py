"""A random Llama of two layers with its own tokenizer, made anew in each session: nothing here depends on shipped weights."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from contracts.policy import Model, Plugin, Policy, RewardPart, RewardSpec, RolloutPlan, Serving, Step, Template

HIDDEN, LAYERS, HEADS, GROUPS, FEED, VOCABULARY = 48, 2, 6, 2, 96, 300

Make = Callable[..., Path]


def policy(name: str = "tab", **changes: object) -> Policy:
    made = Policy(
        name=name,
        model=Model(base="nowhere"),
        template=Template(context_tokens=96, ask="<ask>", silence="<silence>", end="<end>"),
        serving=Serving(temperature=1.0, max_tokens=10, batch=16),
        reward=RewardSpec(name="tab", version=1, parts=(RewardPart(extractor="acceptance", weight=1.0),)),
        rollout=RolloutPlan(name="tab", steps=(Step(share=0.5),), gates=(Plugin(name="sample_ratio"),)),
    )
    return made.model_copy(update=changes)


def write_tokenizer(folder: Path, first_word: str = "def") -> None:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<ask>", "<silence>", "<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = f"{first_word} add(one, two):\n    return one + two\nimport os, sys\nfor item in items: pass\n"
    bpe.train_from_iterator([text * 3], trainer)
    bpe.save(str(folder / "tokenizer.json"))


def write_model(folder: Path, seed: int, layers: int = LAYERS, dtype: torch.dtype = torch.float32) -> None:
    folder.mkdir(parents=True)
    write_tokenizer(folder)
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": FEED,
        "max_position_embeddings": 128,
        "num_attention_heads": HEADS,
        "num_hidden_layers": layers,
        "num_key_value_heads": GROUPS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "vocab_size": vocabulary,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    dice = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=dice) * 0.25).to(dtype)

    size = HIDDEN // HEADS
    tensors = {"model.embed_tokens.weight": noise(vocabulary, HIDDEN), "model.norm.weight": torch.ones(HIDDEN, dtype=dtype)}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        tensors |= {
            f"{at}input_layernorm.weight": 1 + noise(HIDDEN) * 0.1,
            f"{at}post_attention_layernorm.weight": 1 + noise(HIDDEN) * 0.1,
            f"{at}self_attn.q_proj.weight": noise(HEADS * size, HIDDEN),
            f"{at}self_attn.k_proj.weight": noise(GROUPS * size, HIDDEN),
            f"{at}self_attn.v_proj.weight": noise(GROUPS * size, HIDDEN),
            f"{at}self_attn.o_proj.weight": noise(HIDDEN, HEADS * size),
            f"{at}mlp.gate_proj.weight": noise(FEED, HIDDEN),
            f"{at}mlp.up_proj.weight": noise(FEED, HIDDEN),
            f"{at}mlp.down_proj.weight": noise(HIDDEN, FEED),
        }
    save_file(tensors, str(folder / "model.safetensors"))


def change_tensor(folder: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    file = str(folder / "model.safetensors")
    tensors = load_file(file)
    tensors[name] = change(tensors[name]).contiguous()
    save_file(tensors, file)


@pytest.fixture(scope="session")
def models_made(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    root = tmp_path_factory.mktemp("models")
    made = {seed: root / f"seed-{seed}" for seed in (1, 2, 3)}
    for seed, folder in made.items():
        write_model(folder, seed)
    return made


@pytest.fixture
def model(models_made: dict[int, Path], tmp_path: Path) -> Make:
    """A fresh copy of a model folder, to be damaged at will."""
    count = 0

    def copy(seed: int = 1) -> Path:
        nonlocal count
        count += 1
        return Path(shutil.copytree(models_made[seed], tmp_path / f"model-{count}"))

    return copy
