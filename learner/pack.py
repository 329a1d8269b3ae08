"""From samples to numbered batches of tokens that a model can read.

Enters: samples and the advantage plugin. Leaves: minibatches in a seeded random order, each cut into parts of sequences of
similar length. A turn is a sequence: its prompt and its answer, ids as they were sampled. Nothing can go wrong here: `admit`
has refused what cannot be packed.

Padding is on the right and a causal model never looks right, so real tokens see exactly what they saw when they were sampled,
without a mask and with positions from 0. The pad id is never read, whatever it means elsewhere (in some models it also ends an
answer).

Legend: B samples or sequences, T tokens of the longest, N trainable tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from contracts.reward import Sample
from learner.advantages import Advantage
from learner.losses import Size

_PAD = 0


@dataclass(frozen=True, slots=True)
class Sequenced:
    """One trainable turn. `start` is where the answer begins in `ids`, at least 1."""

    ids: tuple[int, ...]
    start: int
    behaviour: tuple[float, ...]
    temperature: float
    advantage: float


@dataclass(frozen=True, slots=True)
class Part:
    """What goes through the model at once. Token n of the answers stands at (row_N[n], before_N[n] + 1)."""

    ids_BT: Tensor
    row_N: Tensor
    before_N: Tensor
    target_N: Tensor
    behaviour_N: Tensor
    advantage_N: Tensor
    temperature_N: Tensor


@dataclass(frozen=True, slots=True)
class Minibatch:
    """What one optimiser step learns from."""

    parts: tuple[Part, ...]
    size: Size
    signal: bool


def sequences(samples: Sequence[Sample], advantage: Advantage) -> list[list[Sequenced]]:
    """The trainable turns of each sample, with their advantages over the whole cycle."""
    rewards_B = np.array([sample.reward for sample in samples], dtype=np.float64)
    baseline_B, scale_B = advantage(rewards_B, [sample.group_key for sample in samples])
    return [
        [
            Sequenced(
                ids=segment.prompt_ids + segment.completion_ids,
                start=len(segment.prompt_ids),
                behaviour=segment.logps or (),
                temperature=segment.temperature,
                advantage=float((segment.credit - baseline_B[place]) * scale_B[place]),
            )
            for segment in sample.segments
            if segment.trainable and segment.completion_ids
        ]
        for place, sample in enumerate(samples)
    ]


def minibatches(packed: Sequence[list[Sequenced]], size: int, part_tokens: int, seed: int) -> Iterator[Minibatch]:
    """`size` samples a step, each sample in exactly one; the same seed gives the same order."""
    order = np.random.default_rng(seed).permutation(len(packed))
    for start in range(0, len(order), size):
        yield minibatch([turn for place in order[start : start + size] for turn in packed[place]], part_tokens)


def minibatch(turns: Sequence[Sequenced], part_tokens: int) -> Minibatch:
    ordered = sorted(turns, key=lambda turn: len(turn.ids))
    return Minibatch(
        parts=tuple(_part(group) for group in _cut(ordered, part_tokens)),
        size=Size(tokens=sum(len(turn.behaviour) for turn in turns), sequences=len(turns)),
        signal=any(turn.advantage != 0.0 for turn in turns),
    )


def _cut(ordered: Sequence[Sequenced], part_tokens: int) -> Iterator[list[Sequenced]]:
    """As many sequences as fit when padded, and no more than a tenth of padding."""
    group: list[Sequenced] = []
    for turn in ordered:
        length = len(turn.ids)
        if group and (length * (len(group) + 1) > part_tokens or len(group[0].ids) < 0.8 * length):
            yield group
            group = []
        group.append(turn)
    if group:
        yield group


def _part(turns: Sequence[Sequenced]) -> Part:
    longest = len(turns[-1].ids)
    ids_BT = np.full((len(turns), longest), _PAD, dtype=np.int64)
    for row, turn in enumerate(turns):
        ids_BT[row, : len(turn.ids)] = turn.ids
    answers_B = np.array([len(turn.behaviour) for turn in turns])
    row_N = np.repeat(np.arange(len(turns)), answers_B)
    before_N = np.concatenate([np.arange(turn.start - 1, len(turn.ids) - 1) for turn in turns])
    return Part(
        ids_BT=torch.from_numpy(ids_BT),
        row_N=torch.from_numpy(row_N),
        before_N=torch.from_numpy(before_N),
        target_N=torch.from_numpy(ids_BT[row_N, before_N + 1]),
        behaviour_N=torch.from_numpy(np.concatenate([np.array(turn.behaviour, dtype=np.float32) for turn in turns])),
        advantage_N=torch.from_numpy(np.repeat(np.array([t.advantage for t in turns], dtype=np.float32), answers_B)),
        temperature_N=torch.from_numpy(np.repeat(np.array([t.temperature for t in turns], dtype=np.float32), answers_B)),
    )
