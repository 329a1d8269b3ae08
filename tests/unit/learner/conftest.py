"""A tiny random Llama, samples that it really sampled, and a learner on a real database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from contracts.policy import Learner as LearnerSettings
from contracts.policy import Model, Plugin, Policy, RewardPart, RewardSpec, RolloutPlan, Step
from contracts.reward import Sample, Segment
from contracts.rollout import Rollout
from contracts.states import CheckpointState
from contracts.turn import VersionSpan
from infra.clock import to_ms
from infra.db.engine import open_db, reading, writing
from infra.db.query import Engine, Session, select
from infra.db.tables.ingest import EpisodeRow
from infra.db.tables.learner import CheckpointRow, CycleRow
from infra.db.tables.registry import RolloutRow, VersionRow
from infra.db.tables.rewarding import SampleRow
from infra.eventlog.embedded import EmbeddedLog
from infra.settings import Settings
from infra.tracking import Tracking
from learner.config import LearnerConfig
from learner.loop import Learner
from learner.publish import Publisher
from learner.surroundings import Surroundings

START = datetime(2026, 1, 1, tzinfo=UTC)
VOCABULARY = 64
END = 2


def tiny_llama(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    shape = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=END,
        pad_token_id=END,
    )
    return LlamaForCausalLM(shape).eval()


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tiny_llama().save_pretrained(str(folder))
    tokenizer = Tokenizer(models.WordLevel({f"w{n}": n for n in range(VOCABULARY)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@torch.no_grad()
def sample_answer(model: LlamaForCausalLM, prompt: tuple[int, ...], temperature: float, rng: torch.Generator) -> Segment:
    """As an engine samples: one sequence, no padding, log-probs after temperature."""
    ids, logps = list(prompt), []
    for _ in range(6):
        logp_V = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1] / temperature, -1)
        token = int(torch.multinomial(logp_V.exp(), 1, generator=rng))
        ids.append(token)
        logps.append(float(logp_V[token]))
        if token == END:
            break
    answer = tuple(ids[len(prompt) :])
    return Segment(
        turn_id="e.1",
        prompt_ids=prompt,
        completion_ids=answer,
        logps=tuple(logps),
        spans=(VersionSpan(version="tab-v0000", start=0, end=len(answer)),),
        temperature=temperature,
        trainable=True,
        credit=0.0,
    )


@pytest.fixture(scope="session")
def segments() -> tuple[Segment, ...]:
    """48 answers of the base model to prompts of many lengths."""
    model, rng = tiny_llama(), torch.Generator().manual_seed(1)
    prompts = [tuple(torch.randint(3, VOCABULARY, (4 + n % 23,), generator=rng).tolist()) for n in range(48)]
    return tuple(sample_answer(model, prompt, 0.7, rng) for prompt in prompts)


def make_sample(n: int, segment: Segment, policy: str = "tab", version: str | None = None, **changes: Any) -> Sample:
    """An answer is liked when its first token is even."""
    reward = changes.pop("reward", 0.75 if segment.completion_ids and segment.completion_ids[0] % 2 == 0 else -0.25)
    turn = segment.model_copy(
        update={
            "turn_id": f"{policy}-e{n}.1",
            "credit": reward,
            "spans": (VersionSpan(version=version or f"{policy}-v0000", start=0, end=len(segment.completion_ids)),),
        }
    )
    fields: dict[str, Any] = {
        "sample_id": f"{policy}-e{n}",
        "revision": 1,
        "policy": policy,
        "subject": f"person-{n % 12}",
        "spec": "tab@1",
        "reward": reward,
        "group_key": None,
        "segments": (turn,),
        "sampled_at": START + timedelta(seconds=n),
    }
    return Sample(**(fields | changes))


def put_sample(session: Session, sample: Sample, state: str = "ready") -> None:
    session.add(
        SampleRow(
            sample_id=sample.sample_id,
            policy=sample.policy,
            revision=sample.revision,
            state=state,
            reason=None,
            cycle_id=None,
            lag_version=None,
            subject=sample.subject,
            reward=sample.reward,
            sampled_ms=to_ms(sample.sampled_at),
            body=sample.model_dump_json(),
        )
    )
    session.add(
        EpisodeRow(
            episode_id=sample.sample_id,
            policy=sample.policy,
            subject=sample.subject,
            partition_number=0,
            state="closed",
            revision=1,
            news_ms=0,
            closed_by="closed",
            closed_ms=0,
        )
    )


def make_policy(base: Path, name: str = "tab", **learner: Any) -> Policy:
    settings: dict[str, Any] = {
        "cycle_samples": 32,
        "min_samples": 16,
        "cycle_seconds": 3600.0,
        "minibatch": 8,
        "max_subject_share": 1.0,
        "learning_rate": 3e-4,
        "advantage": Plugin(name="batch_mean", options={"standardise": True}),
    }
    return Policy(
        name=name,
        model=Model(base=str(base)),
        reward=RewardSpec(name="tab", version=1, parts=(RewardPart(extractor="acceptance", weight=1.0),)),
        learner=LearnerSettings(**(settings | learner)),
        rollout=RolloutPlan(
            name="r",
            steps=(Step(share=0.1, min_requests=1, min_subjects=1, min_seconds=0.0, max_seconds=10.0),),
            gates=(Plugin(name="sample_ratio"),),
        ),
    )


@dataclass
class World:
    """A deployment as far as the learner sees it. `route` plays the registry; `now` moves only when a test moves it."""

    home: Path
    engine: Engine
    log: EmbeddedLog
    policies: dict[str, Policy]
    now: datetime = START + timedelta(hours=1)
    config: LearnerConfig = field(default_factory=lambda: LearnerConfig(threads=1, progress_seconds=0.0, retry_seconds=10.0))
    mlflow: str = "http://127.0.0.1:9"

    @property
    def artifacts(self) -> Path:
        return self.home / "artifacts"

    def learner(self, announce: Callable[[str], None] = lambda point: None, stop: threading.Event | None = None) -> Learner:
        around = Surroundings(self.engine, self.artifacts, self.config, lambda: self.now, stop or threading.Event(), announce)
        settings = Settings(home=self.home, mlflow_url=self.mlflow)
        # MLflow is out of these tests, see test_learner_publish: what waits would only be tried once an hour.
        publisher = Publisher(self.engine, Tracking(settings), lambda: self.now, 3600.0)
        publisher.pause(3600.0)
        return Learner(around, self.policies, self.log, publisher)

    def start(self, policy: str = "tab") -> Learner:
        learner = self.learner()
        learner.bootstrap(self.policies[policy])
        self.route(f"{policy}-v0000")
        return learner

    def route(self, champion: str, candidate: str | None = None, settle: bool = True) -> None:
        policy = champion.rpartition("-")[0]
        with writing(self.engine) as session:
            old = session.get(RolloutRow, policy)
            revision = old.revision + 1 if old else 1
            rollout = Rollout(
                policy=policy,
                revision=revision,
                champion=champion,
                candidate=candidate,
                candidate_state=CheckpointState.CANARY if candidate else None,
                experiment=candidate,
                reason="test",
                at=self.now,
            )
            session.merge(RolloutRow(policy=policy, revision=revision, step_since_ms=0, body=rollout.model_dump_json()))
            if settle:
                for row in session.exec(select(CheckpointRow).where(CheckpointRow.policy == policy)).all():
                    if session.get(VersionRow, row.version) is None:
                        state = CheckpointState.LIVE if row.version == champion else CheckpointState.REJECTED
                        self._settle(session, row, state)

    def _settle(self, session: Session, row: CheckpointRow, state: CheckpointState) -> None:
        session.merge(
            VersionRow(
                version=row.version,
                policy=row.policy,
                number=row.number,
                state=state,
                since_ms=0,
                mirrored_state=None,
                body=row.body,
            )
        )

    def put(self, samples: list[Sample]) -> None:
        with writing(self.engine) as session:
            for sample in samples:
                put_sample(session, sample)

    def states(self) -> dict[str, list[str]]:
        with reading(self.engine) as session:
            rows = session.exec(select(SampleRow)).all()
        found: dict[str, list[str]] = {}
        for row in rows:
            found.setdefault(row.state, []).append(row.sample_id)
        return found

    def cycles(self) -> list[CycleRow]:
        with reading(self.engine) as session:
            return list(session.exec(select(CycleRow).order_by(CycleRow.version)).all())

    def checkpoints(self) -> list[CheckpointRow]:
        with reading(self.engine) as session:
            return list(session.exec(select(CheckpointRow).order_by(CheckpointRow.version)).all())


@pytest.fixture
def world(tmp_path: Path, base: Path) -> World:
    return World(
        tmp_path,
        open_db(f"sqlite:///{tmp_path / 'db.sqlite'}"),
        EmbeddedLog(tmp_path / "log.db"),
        {"tab": make_policy(base)},
    )


@pytest.fixture
def fed(world: World, segments: tuple[Segment, ...]) -> World:
    """With a champion and enough samples for a cycle."""
    world.start()
    world.put([make_sample(n, segments[n % len(segments)]) for n in range(40)])
    return world
