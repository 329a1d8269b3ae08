"""Packing, scoring, stepping: equal to the engine on unchanged weights, equal to a plain pass; nothing moves when it must not."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from contracts.policy import Plugin
from contracts.reward import Sample, Segment
from learner import guard, pack
from learner.advantages import ADVANTAGES
from learner.forward import Scorer
from learner.losses import LOSSES, Loss, LossValue, Size, Tokens
from learner.optimizer import load as load_optimizer
from learner.optimizer import save as save_optimizer
from learner.plugins import build
from learner.update import Updater
from tests.unit.learner.conftest import END, make_policy, make_sample, tiny_llama

BATCH_MEAN = build(ADVANTAGES, Plugin(name="batch_mean", options={"standardise": True}), "tab")
TIS = build(LOSSES, Plugin(name="reinforce_tis"), "tab")


@pytest.fixture
def samples(segments: tuple[Segment, ...]) -> list[Sample]:
    return [make_sample(n, segment) for n, segment in enumerate(segments)]


def whole(samples: list[Sample], part_tokens: int = 10_000) -> pack.Minibatch:
    return pack.minibatch([turn for turns in pack.sequences(samples, BATCH_MEAN) for turn in turns], part_tokens)


def updater(model: LlamaForCausalLM, loss: Loss = TIS, min_ess: float = 0.1, **learner: object) -> Updater:
    return Updater(model, loss, make_policy(Path("unused"), **learner).learner, min_ess)


def snapshot(worker: Updater) -> dict[str, torch.Tensor]:
    weights = {name: weight.detach().clone() for name, weight in worker.parameters.items()}
    for name, weight in worker.parameters.items():
        for key, value in worker.optimizer.state.get(weight, {}).items():
            weights[f"{name}/{key}"] = value.clone()
    return weights


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_on_unchanged_weights_every_ratio_is_one(samples: list[Sample]) -> None:
    """Sampled one by one without padding at temperature 0.7; scored in padded batches of mixed lengths."""
    score = Scorer(tiny_llama())
    seen = 0
    for part in whole(samples).parts:
        with torch.no_grad():
            ratio_N = (score(part).logp_N - part.behaviour_N).exp()
        seen += ratio_N.numel()
        np.testing.assert_allclose(ratio_N.numpy(), 1.0, atol=1e-3)
    assert seen == sum(len(sample.segments[0].completion_ids) for sample in samples)


def test_the_first_end_is_trained_although_it_is_also_the_pad(samples: list[Sample]) -> None:
    targets = torch.cat([part.target_N for part in whole(samples).parts])
    assert int((targets == END).sum()) == sum(sample.segments[0].completion_ids.count(END) for sample in samples) > 0


def test_parts_hold_every_token_once_and_little_padding(samples: list[Sample]) -> None:
    batch = whole(samples, part_tokens=256)
    assert len(batch.parts) > 3
    assert sum(part.target_N.numel() for part in batch.parts) == batch.size.tokens
    assert all(part.ids_BT.numel() <= 256 for part in batch.parts)
    real = sum(len(s.segments[0].prompt_ids) + len(s.segments[0].completion_ids) for s in samples)
    assert sum(part.ids_BT.numel() for part in batch.parts) <= 1.2 * real


def test_an_epoch_takes_each_sample_once(samples: list[Sample]) -> None:
    packed = pack.sequences(samples, BATCH_MEAN)
    sizes = [batch.size.sequences for batch in pack.minibatches(packed, 10, 10_000, seed=3)]
    assert sizes == [10, 10, 10, 10, 8]
    tokens = sum(batch.size.tokens for batch in pack.minibatches(packed, 10, 10_000, seed=3))
    assert tokens == whole(samples).size.tokens


def test_gradient_equals_a_plain_float64_pass(samples: list[Sample]) -> None:
    """The whole path (packing, positions, temperature, loss, parts) against one sequence at a time in float64, without our code."""
    model = tiny_llama(seed=5)  # other weights than those that sampled, so that ratios matter
    worker = updater(model, min_ess=0.0, max_kl=1e9, grad_clip=1e9)
    few = samples[:12]
    batch = whole(few, part_tokens=128)

    plain = tiny_llama(seed=5).double()
    rewards = np.array([sample.reward for sample in few])
    total = torch.zeros((), dtype=torch.float64)
    for sample, advantage in zip(few, (rewards - rewards.mean()) / rewards.std(), strict=True):
        turn = sample.segments[0]
        ids = torch.tensor([turn.prompt_ids + turn.completion_ids])
        logp_TV = torch.log_softmax(plain(ids).logits[0] / turn.temperature, -1)
        for place, (token, behaviour) in enumerate(zip(turn.completion_ids, turn.logps or (), strict=True)):
            logp = logp_TV[len(turn.prompt_ids) + place - 1, token]
            weight = min(math.exp(logp.item() - behaviour), 2.0)
            total = total - weight * advantage * logp / batch.size.tokens
    total.backward()

    for part in batch.parts:
        scored = worker._score(part)
        TIS(Tokens(scored.logp_N, part.behaviour_N, part.advantage_N, part.row_N), batch.size).loss.backward()
    for (name, weight), reference in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert weight.grad is not None and reference.grad is not None
        np.testing.assert_allclose(weight.grad.numpy(), reference.grad.numpy(), rtol=2e-3, atol=2e-5, err_msg=name)


def test_a_step_makes_what_was_liked_likelier(samples: list[Sample]) -> None:
    worker = updater(tiny_llama(), learning_rate=1e-3)
    batch = whole(samples)
    before = [worker._score(part).logp_N.detach() for part in batch.parts]
    report = worker.step(batch)
    assert report.refused is None and report.grad_norm > 0
    assert report.drift.kl_k3 == pytest.approx(0.0, abs=1e-5) and report.drift.ess == pytest.approx(1.0, abs=1e-4)
    gain = sum(
        float(((worker._score(part).logp_N.detach() - old) * part.advantage_N).sum())
        for part, old in zip(batch.parts, before, strict=True)
    )
    assert gain > 0
    assert worker.drift(batch.parts).kl_k3 > 0


class Poisoned(Loss):
    """A loss that comes out as it is told."""

    value: float

    def __call__(self, tokens: Tokens, size: Size) -> LossValue:
        return LossValue(tokens.logp_N.sum() * self.value, tokens.logp_N > 0)


class OneBadGradient(Loss):
    """The loss is finite, its gradient is not: sqrt at 0."""

    def __call__(self, tokens: Tokens, size: Size) -> LossValue:
        zero_N = (tokens.logp_N - tokens.logp_N.detach()).square()
        return LossValue(zero_N.sum().sqrt(), tokens.logp_N > 0)


def refusals(samples: list[Sample]) -> dict[str, tuple[Loss, list[Sample], dict[str, object]]]:
    far = [
        sample.model_copy(
            update={
                "segments": (sample.segments[0].model_copy(update={"logps": tuple(-9.0 for _ in sample.segments[0].logps or ())}),)
            }
        )
        for sample in samples
    ]
    equal = [sample.model_copy(update={"reward": 0.1}) for sample in samples]
    equal = [s.model_copy(update={"segments": (s.segments[0].model_copy(update={"credit": 0.1}),)}) for s in equal]
    mute = [s.model_copy(update={"segments": (s.segments[0].model_copy(update={"trainable": False}),)}) for s in samples]
    return {
        guard.NON_FINITE_LOSS: (Poisoned.model_construct(value=math.nan), samples, {}),
        guard.NON_FINITE_NORM: (OneBadGradient(), samples, {}),
        guard.KL: (TIS, far, {"min_ess": 0.0}),
        guard.ESS: (TIS, far, {"max_kl": 1e9, "min_ess": 1.0}),
        guard.NO_SIGNAL: (TIS, equal, {}),
        guard.NO_TOKENS: (TIS, mute, {}),
    }


@pytest.mark.parametrize(
    "reason", [guard.NON_FINITE_LOSS, guard.NON_FINITE_NORM, guard.KL, guard.ESS, guard.NO_SIGNAL, guard.NO_TOKENS]
)
def test_a_refused_step_leaves_everything_as_it_was(samples: list[Sample], reason: str) -> None:
    loss, bad, options = refusals(samples)[reason]
    worker = updater(tiny_llama(), **options)  # type: ignore[arg-type]
    if reason not in (guard.KL, guard.ESS):
        assert worker.step(whole(samples)).refused is None  # so that the optimiser has a state to lose
    before = snapshot(worker)
    worker._loss = loss
    report = worker.step(whole(bad))
    assert report.refused == reason
    assert same(before, snapshot(worker)), "bit for bit"
    assert all(weight.grad is None for weight in worker.parameters.values())


def test_after_a_refused_step_the_next_goes_on(samples: list[Sample]) -> None:
    one, two = updater(tiny_llama()), updater(tiny_llama())
    one.step(whole(samples))
    one._loss = Poisoned.model_construct(value=math.nan)
    one.step(whole(samples))
    one._loss = TIS
    one.step(whole(samples))
    two.step(whole(samples))
    two.step(whole(samples))
    assert same(snapshot(one), snapshot(two))


def test_weights_that_are_not_finite_are_refused(samples: list[Sample]) -> None:
    worker = updater(tiny_llama())
    with torch.no_grad():
        next(iter(worker.parameters.values()))[0, 0] = math.nan
    assert worker.refuse_weights(whole(samples).parts)[0] == guard.NON_FINITE_WEIGHTS


def test_the_optimiser_goes_on_from_its_file(samples: list[Sample], tmp_path: Path) -> None:
    straight = updater(tiny_llama())
    straight.step(whole(samples))
    save_optimizer(straight, tmp_path)
    resumed = updater(tiny_llama())
    resumed_model = dict(resumed.parameters)
    with torch.no_grad():
        for name, weight in straight.parameters.items():
            resumed_model[name].copy_(weight)
    assert load_optimizer(resumed, tmp_path)
    straight.step(whole(samples))
    resumed.step(whole(samples))
    assert same(snapshot(straight), snapshot(resumed))


def test_an_optimiser_file_of_another_model_is_left_alone(samples: list[Sample], tmp_path: Path) -> None:
    worker = updater(tiny_llama())
    worker.step(whole(samples))
    save_optimizer(worker, tmp_path)
    other = tiny_llama()
    other.resize_token_embeddings(65)
    stranger = updater(other)
    assert not load_optimizer(stranger, tmp_path)
    assert not load_optimizer(stranger, tmp_path / "absent")
    assert not stranger.optimizer.state


def test_a_model_that_does_more_to_its_logits_is_scored_in_full(samples: list[Sample]) -> None:
    class Capped(LlamaForCausalLM):
        def forward(self, *args: object, **kwargs: object):  # type: ignore[no-untyped-def]
            out = super().forward(*args, **kwargs)  # type: ignore[arg-type]
            out.logits = torch.tanh(out.logits / 5.0) * 5.0
            return out

    model = tiny_llama()
    capped = Capped(model.config).eval()
    capped.load_state_dict(model.state_dict())
    part = whole(samples[:4]).parts[0]
    logits_BTV = capped(part.ids_BT).logits
    expected = torch.log_softmax(logits_BTV[part.row_N, part.before_N] / part.temperature_N[:, None], -1)
    expected_N = expected.gather(1, part.target_N[:, None])[:, 0]
    torch.testing.assert_close(Scorer(capped)(part).logp_N, expected_N)
