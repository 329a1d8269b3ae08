"""Losses against references written out by hand in float64, and cut into parts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.policy import Plugin
from learner.losses import LOSSES, Loss, Size, Tokens
from learner.plugins import build

token = st.tuples(st.floats(-4, -0.01), st.floats(-4, -0.01), st.floats(-3, 3))
sequences = st.lists(st.lists(token, min_size=1, max_size=5), min_size=1, max_size=5)
Sequences = list[list[tuple[float, float, float]]]


def make(name: str, **options: float) -> Loss:
    return build(LOSSES, Plugin(name=name, options=options), "tab")


def tensors(rows: Sequences) -> tuple[Tokens, Size]:
    flat = [token for row in rows for token in row]
    logp = torch.tensor([t[0] for t in flat], dtype=torch.float64, requires_grad=True)
    behaviour = torch.tensor([t[1] for t in flat], dtype=torch.float64)
    advantage = torch.tensor([t[2] for t in flat], dtype=torch.float64)
    number = torch.tensor([n for n, row in enumerate(rows) for _ in row])
    return Tokens(logp, behaviour, advantage, number), Size(len(flat), len(rows))


def gradient(loss: Loss, rows: Sequences) -> tuple[float, list[float]]:
    tokens, size = tensors(rows)
    value = loss(tokens, size).loss
    value.backward()
    assert tokens.logp_N.grad is not None
    return value.item(), tokens.logp_N.grad.tolist()


@given(rows=sequences)
@settings(deadline=None)
def test_reinforce_tis(rows: Sequences) -> None:
    """d/dlogp of -(1/n) sg(min(r, 2)) A logp is the weight itself: nothing flows through r."""
    flat = [t for row in rows for t in row]
    weight = [min(math.exp(new - old), 2.0) * advantage for new, old, advantage in flat]
    value, grad = gradient(make("reinforce_tis"), rows)
    assert value == pytest.approx(-sum(w * t[0] for w, t in zip(weight, flat, strict=True)) / len(flat), abs=1e-12)
    np.testing.assert_allclose(grad, [-w / len(flat) for w in weight], atol=1e-12)


@given(rows=sequences)
@settings(deadline=None)
def test_cispo(rows: Sequences) -> None:
    flat = [t for row in rows for t in row]
    weight = [min(math.exp(new - old), 1.28) * advantage for new, old, advantage in flat]
    _, grad = gradient(make("cispo"), rows)
    np.testing.assert_allclose(grad, [-w / len(flat) for w in weight], atol=1e-12)


@given(rows=sequences)
@settings(deadline=None)
def test_grpo(rows: Sequences) -> None:
    """Where the clipped branch is the smaller one, the token has no gradient; else it is r A, shared by its sequence's length."""
    expected, total = [], 0.0
    for row in rows:
        for new, old, advantage in row:
            ratio = math.exp(new - old)
            free, bound = ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage
            total += min(free, bound) / len(row)
            expected.append(0.0 if bound < free else -free / len(row) / len(rows))
    value, grad = gradient(make("grpo"), rows)
    assert value == pytest.approx(-total / len(rows), abs=1e-12)
    np.testing.assert_allclose(grad, expected, atol=1e-12)


@pytest.mark.parametrize("name", ["reinforce_tis", "cispo", "grpo"])
@given(rows=st.lists(st.lists(token, min_size=1, max_size=5), min_size=2, max_size=5))
@settings(deadline=None)
def test_parts_add_up_to_the_whole(name: str, rows: Sequences) -> None:
    loss = make(name)
    whole, whole_grad = gradient(loss, rows)
    _, size = tensors(rows)
    total, parts_grad = 0.0, []
    for part in (rows[:1], rows[1:]):
        tokens, _ = tensors(part)
        value = loss(tokens, size).loss
        value.backward()
        total += value.item()
        assert tokens.logp_N.grad is not None
        parts_grad += tokens.logp_N.grad.tolist()
    assert total == pytest.approx(whole, abs=1e-12)
    np.testing.assert_allclose(parts_grad, whole_grad, atol=1e-12)


def test_clipped_tokens_are_marked() -> None:
    rows = [[(-1.0, -3.0, 1.0), (-1.0, -1.0, 1.0)]]
    for name in ("reinforce_tis", "cispo", "grpo"):
        assert make(name)(*tensors(rows)).clipped_N.tolist() == [True, False]


def test_an_infinite_ratio_is_cut_not_passed_on() -> None:
    value, grad = gradient(make("reinforce_tis"), [[(-0.1, -2000.0, 1.0)]])
    assert math.isfinite(value) and grad == [-2.0]
