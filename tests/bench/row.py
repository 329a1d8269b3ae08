"""A figure of ours beside its baseline."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Row(BaseModel):
    """`goal` is judged against `ratio` where there is a baseline, else against `ours`; `better` says which way is good."""

    model_config = ConfigDict(frozen=True)

    name: str
    ours: float
    baseline: float | None
    ratio: float | None
    unit: str
    goal: float
    better: Literal["higher", "lower"]

    @classmethod
    def beside(cls, name: str, ours: float, baseline: float, unit: str, goal: float, better: Literal["higher", "lower"]) -> Row:
        ratio = ours / baseline if baseline else None
        return cls(name=name, ours=ours, baseline=baseline, ratio=ratio, unit=unit, goal=goal, better=better)

    @classmethod
    def alone(cls, name: str, ours: float, unit: str, goal: float, better: Literal["higher", "lower"]) -> Row:
        return cls(name=name, ours=ours, baseline=None, ratio=None, unit=unit, goal=goal, better=better)

    @property
    def judged(self) -> str:
        return "ours" if self.ratio is None else "ratio"

    @property
    def sign(self) -> str:
        return ">=" if self.better == "higher" else "<="

    @property
    def met(self) -> bool:
        value = self.ours if self.ratio is None else self.ratio
        return value >= self.goal if self.better == "higher" else value <= self.goal
