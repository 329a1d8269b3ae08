"""Optimiser steps of the learner against a bare loop: forward, loss over the answers, backward, AdamW, on the same padded tokens.

Ours: tokens a second through `Updater.step`, with its corrections, guard and reports. Baseline: the model as transformers gives it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from contracts.policy import Learner
from contracts.reward import Sample, Segment
from harness.tiny import WEIGHTS
from infra.settings import load
from learner.advantages.batch_mean import BatchMean
from learner.config import LearnerConfig
from learner.losses.reinforce_tis import ReinforceTis
from learner.pack import Minibatch, minibatches, sequences
from learner.update import Updater
from tests.bench.row import Row

STAGES = frozenset({"learner"})
SAMPLES, MINIBATCH, PROMPT = 768, 128, 97


def measure(seeds: int) -> list[Row]:
    torch.set_num_threads(1)
    packed = sequences(_samples(), BatchMean(standardise=True))
    batches = list(minibatches(packed, MINIBATCH, load(LearnerConfig).microbatch_tokens, seed=0))
    tokens = sum(part.ids_BT.numel() for batch in batches for part in batch.parts)
    updater = Updater(_model(), ReinforceTis(), Learner(max_kl=1e9), min_ess=0.0)
    ours = _seconds(lambda: [updater.step(batch) for batch in batches])
    model = _model()
    bare = _seconds(lambda: _bare(model, batches))
    return [Row.beside("learner.step_vs_bare", tokens / ours, tokens / bare, "tokens/s", 0.85, "higher")]


def _bare(model: PreTrainedModel, batches: list[Minibatch]) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for batch in batches:
        for part in batch.parts:
            logits = model(input_ids=part.ids_BT, use_cache=False).logits[part.row_N, part.before_N]
            logp = torch.log_softmax(logits.float() / part.temperature_N[:, None], -1).gather(1, part.target_N[:, None])
            (-(part.advantage_N * logp[:, 0]).sum() / batch.size.tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _model() -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(WEIGHTS, dtype=torch.float32).eval()


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _samples() -> list[Sample]:
    dice = np.random.default_rng(0)
    made = []
    for number in range(SAMPLES):
        answer = tuple(int(token) for token in dice.integers(0, 2048, int(dice.integers(1, 10))))
        segment = Segment(
            turn_id=f"e{number}.1-0",
            prompt_ids=tuple(int(token) for token in dice.integers(0, 2048, PROMPT)),
            completion_ids=answer,
            logps=tuple(-3.0 for _ in answer),
            spans=(),
            temperature=0.4,
            trainable=True,
            credit=float(dice.choice([0.75, -0.25, 0.0])),
        )
        made.append(
            Sample(
                sample_id=f"e{number}",
                revision=1,
                policy="tab",
                subject="s",
                spec="tab@1",
                reward=segment.credit,
                group_key=None,
                segments=(segment,),
                sampled_at=datetime.now(UTC),
            )
        )
    return made
