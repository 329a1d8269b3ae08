"""A random Llama of two layers with its own tokenizer, made anew in each session: nothing here depends on shipped weights."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from contracts.checkpoint import Checkpoint
from contracts.policy import Model, Plugin, Policy, RewardPart, RewardSpec, RolloutPlan, Serving, Step, Template
from contracts.rollout import Rollout
from contracts.states import CheckpointState
from contracts.topics import TURNS
from contracts.turn import Turn
from infra.artifacts import seal
from infra.db.engine import open_db, reading, writing
from infra.db.query import select
from infra.db.tables.learner import CheckpointRow
from infra.db.tables.registry import RolloutRow
from infra.db.tables.serving import ReplicaRow
from infra.db.tables.stream import CounterRow
from infra.eventlog.open import open_log
from infra.settings import Settings
from serving.loop import answer

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


class Deployment:
    """A database, an event log and policy files in one folder, and a gateway that runs on them in a thread."""

    def __init__(self, home: Path, policies: Sequence[Policy]) -> None:
        (home / "policies").mkdir(parents=True)
        for one in policies:
            (home / "policies" / f"{one.name}.yaml").write_text(json.dumps(one.model_dump(mode="json")))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.settings = Settings(home=home, policies=home / "policies", port_base=port)
        self.database = open_db(self.settings.database)
        self.log = open_log(self.settings)
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.url, verify=False, timeout=60)
        self.stop = threading.Event()
        self._thread = threading.Thread(target=answer, args=(self.settings, self.stop), daemon=True)
        self._numbers: dict[str, int] = {}

    def seal(self, version: str, source: Path, name: str = "tab", kind: str = "full", parent: str | None = None) -> Checkpoint:
        folder, files = seal(
            self.settings.artifact_root, version, lambda to: shutil.copytree(source, to, dirs_exist_ok=True) and None
        )
        number = self._numbers[name] = self._numbers.get(name, -1) + 1
        checkpoint = Checkpoint(
            version=version,
            policy=name,
            number=number,
            parent=parent,
            kind=kind,
            uri=folder.resolve().as_uri(),
            files=files,
            samples=None,
            sample_count=0,
            spec=None,
            cycle_id=None,
            metrics={},
            created_at=datetime.now(UTC),
        )
        with writing(self.database) as session:
            body = checkpoint.model_dump_json()
            row = CheckpointRow(
                version=version, policy=name, number=number, parent=parent, created_ms=0, published_ms=None, body=body
            )
            session.add(row)
        return checkpoint

    def roll_out(self, champion: str, candidate: str | None = None, share: float = 0.0, name: str = "tab") -> Rollout:
        with writing(self.database) as session:
            row = session.get(RolloutRow, name)
            rollout = Rollout(
                policy=name,
                revision=row.revision + 1 if row else 1,
                champion=champion,
                candidate=candidate,
                candidate_state=None if candidate is None else CheckpointState.CANARY,
                experiment=None if candidate is None else f"{name}-{candidate}",
                step=None if candidate is None else 0,
                share=share,
                reason="a test",
                at=datetime.now(UTC),
            )
            row = row or RolloutRow(policy=name, revision=0, step_since_ms=0, body="")
            row.revision, row.body = rollout.revision, rollout.model_dump_json()
            session.add(row)
        return rollout

    def start(self) -> None:
        self._thread.start()
        self.until(lambda: self.health() is not None)

    def close(self) -> None:
        self.stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        assert not self._thread.is_alive(), "the gateway did not stop"
        self.log.close()
        self.database.dispose()

    def again(self) -> Deployment:
        """The same folder and port after a restart."""
        self.log = open_log(self.settings)
        self.stop.clear()
        self._thread = threading.Thread(target=answer, args=(self.settings, self.stop), daemon=True)
        self.start()
        return self

    def health(self) -> dict[str, Any] | None:
        try:
            response = self.http.get("/health")
        except httpx.TransportError:
            return None
        return {**response.json(), "code": response.status_code}

    def serves(self, champion: str, candidate: str | None = None, name: str = "tab") -> bool:
        one = (self.health() or {"policies": {}})["policies"].get(name, {})
        wanted = {champion, *([candidate] if candidate else [])}
        return one.get("version") == champion and one.get("candidate") == candidate and wanted <= set(one["versions"])

    def until(self, done: Callable[[], object], patience_s: float = 60.0) -> None:
        deadline = time.monotonic() + patience_s
        while not done():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)

    def ask(
        self, prompt: str | list[int] = "import os\n", model: str = "tab", headers: dict[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        given = {"X-Consent": "true", "X-Subject": "ada", **(headers or {})}
        return self.http.post("/v1/completions", json={"model": model, "prompt": prompt, **body}, headers=given)

    def turns(self) -> list[Turn]:
        """Everything on the topic, read by a group of its own."""
        total = sum(self.log.ends(TURNS.name).values())
        consumer = self.log.consumer(f"reader-{time.monotonic_ns()}", [TURNS.name])
        found: list[Turn] = []
        try:
            deadline = time.monotonic() + 60
            while len(found) < total and time.monotonic() < deadline:
                found += [Turn.decode(message.value) for message in consumer.poll(0.1)]
        finally:
            consumer.close()
        return found

    def replica(self, version: str) -> ReplicaRow | None:
        with reading(self.database) as session:
            return session.exec(select(ReplicaRow).where(ReplicaRow.version == version)).first()

    def counted(self, name: str, policy: str = "tab") -> int:
        with reading(self.database) as session:
            row = session.get(CounterRow, (policy, name))
        return row.count if row else 0


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Deployment]]:
    monkeypatch.setenv("SLIPSTREAM_SERVING_ROUTE_SECONDS", "0.02")
    monkeypatch.setenv("SLIPSTREAM_SERVING_SQL_SECONDS", "0.02")
    monkeypatch.setenv("SLIPSTREAM_SERVING_FLUSH_SECONDS", "0.05")
    made: list[Deployment] = []

    def build(*policies: Policy) -> Deployment:
        made.append(Deployment(tmp_path / f"home-{len(made)}", policies or (policy(),)))
        return made[-1]

    yield build
    for one in made:
        one.close()


@pytest.fixture
def gateway(deploy: Callable[..., Deployment], models_made: dict[int, Path]) -> Deployment:
    """Version v1 is champion and answers."""
    made = deploy()
    made.seal("v1", models_made[1])
    made.roll_out("v1")
    made.start()
    made.until(lambda: made.serves("v1"))
    return made
