"""Losses, one file each: a frozen record whose fields are its options, and a formula.

A loss sees whole sequences, but perhaps only a part of a minibatch at a time (what fits in memory), so it divides by the size
of the whole minibatch and parts add up to exactly what one pass would give. Behaviour log-probs are those recorded when the
answer was sampled: taking a later policy for them is a known mistake in asynchronous set-ups.

Legend: N trainable tokens, S sequences.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from contracts.catalog import Catalog
from contracts.record import Record


@dataclass(frozen=True, slots=True)
class Tokens:
    """`logp_N` carries the gradient; `sequence_N` numbers the sequences of this part from 0."""

    logp_N: Tensor
    behaviour_N: Tensor
    advantage_N: Tensor
    sequence_N: Tensor


class Size(NamedTuple):
    """Of the whole minibatch, both at least 1."""

    tokens: int
    sequences: int


class LossValue(NamedTuple):
    """`clipped_N`: where the correction was cut."""

    loss: Tensor
    clipped_N: Tensor


class Loss(Record):
    @abstractmethod
    def __call__(self, tokens: Tokens, size: Size) -> LossValue: ...


LOSSES: Catalog[type[Loss]] = Catalog("loss", "learner.losses")
