"""A reward from an episode revision and a spec: a pure function, so that it can be recomputed and must give the same bits.

For each turn: the weighted sum of what extractors found for it, or, where no paid extractor found anything, the price of how it
ended. Findings about the whole episode are added to every turn's credit. Credits are clamped; the reward is their sum, None when
nothing was found and no price applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contracts.episode import Episode
from contracts.policy import RewardSpec
from contracts.reward import Part, Reward
from contracts.turn import Turn
from rewarding.extract import Extractor, build

_PRICE = "price."


@dataclass(frozen=True)
class Judged:
    """A reward, and the credit of each turn that has one."""

    reward: Reward
    credit: Mapping[str, float]


class Blend:
    def __init__(self, spec: RewardSpec) -> None:
        self._spec = spec
        self._extractors: tuple[tuple[str, float, Extractor], ...] = build(spec)

    def judge(self, episode: Episode) -> Judged:
        parts = [
            Part(name=name, value=finding.value, weight=weight, turn_id=finding.turn_id, evidence=finding.evidence)
            for name, weight, extractor in self._extractors
            for finding in extractor.find(episode)
        ]
        paid = {part.turn_id for part in parts if part.weight != 0.0}
        for turn in episode.turns:
            if turn.turn_id not in paid and None not in paid:
                name, price = self._price(turn)
                parts.append(Part(name=f"{_PRICE}{name}", value=price, weight=1.0, turn_id=turn.turn_id))
        credit = self._credit(episode, parts)
        reward = Reward(
            episode_id=episode.episode_id,
            revision=episode.revision,
            policy=episode.policy,
            spec=self._spec.id,
            value=self._clamp(sum(credit.values())) if credit else None,
            parts=tuple(parts),
        )
        return Judged(reward, credit)

    def _credit(self, episode: Episode, parts: list[Part]) -> dict[str, float]:
        of_turn: dict[str, float] = {}
        terminal = [part.value * part.weight for part in parts if part.turn_id is None and part.value is not None and part.weight]
        for part in parts:
            if part.turn_id is not None and part.value is not None and part.weight:
                of_turn[part.turn_id] = of_turn.get(part.turn_id, 0.0) + part.value * part.weight
        if terminal:
            of_turn = {turn.turn_id: of_turn.get(turn.turn_id, 0.0) + sum(terminal) for turn in episode.turns}
        return {turn: self._clamp(value) for turn, value in of_turn.items()}

    def _price(self, turn: Turn) -> tuple[str, float | None]:
        """How an answer ended may have a price; where it has none, the lack of feedback may."""
        prices = self._spec.prices
        by_finish = {
            "silence": prices.silence,
            "empty": prices.empty,
            "length": prices.length,
            "abort": prices.abort,
            "error": prices.error,
        }
        price = by_finish.get(turn.finish)
        return (turn.finish, price) if price is not None else ("no_feedback", prices.no_feedback)

    def _clamp(self, value: float) -> float:
        low, high = self._spec.clamp
        return min(high, max(low, value))
