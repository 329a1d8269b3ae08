"""Optimiser steps: gradients of a minibatch, the guard, then AdamW.

Enters: a model, a loss, a minibatch. Leaves: changed weights, or unchanged ones and the reason; always a report. Everything is
judged before the optimiser moves, so a refused step leaves no trace: there is no state to restore.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from contracts.policy import Learner
from learner import guard
from learner.forward import Scorer
from learner.guard import Bounds, Drift, StepReport
from learner.losses import Loss, Tokens
from learner.pack import Minibatch, Part

_NAN = float("nan")
NO_DRIFT = Drift(_NAN, _NAN, _NAN, _NAN, _NAN)


class Updater:
    """One policy's weights while a cycle changes them. Dropout is off: the engine sampled without it."""

    def __init__(self, model: PreTrainedModel, loss: Loss, learner: Learner, min_ess: float) -> None:
        model.eval()
        self._loss = loss
        self._score = Scorer(model)
        self._bounds = Bounds(learner.max_kl, min_ess)
        self._grad_clip = learner.grad_clip
        self.parameters = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.optimizer = torch.optim.AdamW(self.parameters.values(), lr=learner.learning_rate, weight_decay=0.0)

    def step(self, batch: Minibatch) -> StepReport:
        if batch.size.tokens == 0:
            return _not_even_tried(batch, guard.NO_TOKENS)
        if not batch.signal:
            return _not_even_tried(batch, guard.NO_SIGNAL)
        self.optimizer.zero_grad(set_to_none=True)
        tally = _Tally()
        loss = 0.0
        for part in batch.parts:
            scored = self._score(part)
            tokens = Tokens(scored.logp_N, part.behaviour_N, part.advantage_N, part.row_N)
            value = self._loss(tokens, batch.size)
            value.loss.backward()  # type: ignore[no-untyped-call]
            loss += value.loss.item()
            tally.add(part, scored.logp_N, scored.entropy_N, value.clipped_N)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), self._grad_clip).item()
        drift = tally.drift()
        refused = guard.refuse_step(loss, norm, drift, self._bounds)
        if refused is None:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return StepReport(batch.size.tokens, batch.size.sequences, loss, norm, tally.clip_share(), drift, refused)

    @torch.no_grad()
    def drift(self, parts: Sequence[Part]) -> Drift:
        """How far the present weights are from those that sampled these tokens."""
        tally = _Tally()
        for part in parts:
            scored = self._score(part)
            tally.add(part, scored.logp_N, scored.entropy_N, torch.zeros(0))
        return tally.drift()

    def refuse_weights(self, parts: Sequence[Part]) -> tuple[str | None, Drift]:
        """Whether the weights as they are now may be sealed."""
        if not all(bool(torch.isfinite(weight).all()) for weight in self.parameters.values()):
            return guard.NON_FINITE_WEIGHTS, NO_DRIFT
        drift = self.drift(parts)
        return guard.refuse_drift(drift, self._bounds), drift


class _Tally:
    """Sums over the parts of a minibatch, in float64."""

    def __init__(self) -> None:
        self._n = 0
        self._clipped = 0.0
        self._max = 0.0
        self._sums = torch.zeros(4, dtype=torch.float64)

    def add(self, part: Part, logp_N: Tensor, entropy_N: Tensor, clipped_N: Tensor) -> None:
        log_ratio_N = (logp_N.detach() - part.behaviour_N).double()
        ratio_N = log_ratio_N.exp()
        self._n += log_ratio_N.numel()
        self._sums += torch.stack([log_ratio_N.sum(), ratio_N.sum(), ratio_N.square().sum(), entropy_N.double().sum()])
        self._max = max(self._max, ratio_N.max().item()) if ratio_N.numel() else self._max
        self._clipped += clipped_N.sum().item()

    def drift(self) -> Drift:
        if self._n == 0:
            return NO_DRIFT
        log_ratio, ratio, square, entropy = self._sums.tolist()
        return Drift(
            kl_k1=-log_ratio / self._n,
            kl_k3=(ratio - self._n - log_ratio) / self._n,
            ess=ratio**2 / (self._n * square) if square > 0 else _NAN,
            ratio_max=self._max,
            entropy=entropy / self._n,
        )

    def clip_share(self) -> float:
        return self._clipped / self._n


def _not_even_tried(batch: Minibatch, reason: str) -> StepReport:
    return StepReport(batch.size.tokens, batch.size.sequences, _NAN, _NAN, _NAN, NO_DRIFT, reason)
