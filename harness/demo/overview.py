"""What the demo reads of the console's overview. It takes what it needs and leaves the rest, as any other client would."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

IN_FLIGHT = frozenset({"sealed", "bench", "canary"})
OUT = frozenset({"rejected", "rolled_back"})


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Figure(_Read):
    value: float
    low: float | None
    high: float | None
    n: int


class PartFigure(_Read):
    name: str
    weight: float
    mean: float
    n: int


class VersionFigures(_Read):
    requests: int
    shown: int
    accepted: int
    accept_rate: Figure | None
    silent_share: Figure | None
    reward: Figure | None
    accepted_characters: float | None
    parts: tuple[PartFigure, ...]


class Version(_Read):
    version: str
    number: int
    state: str
    reason: str
    share: float
    figures: VersionFigures | None


class Gate(_Read):
    gate: str
    verdict: str
    reason: str


class Rollout(_Read):
    champion: str
    candidate: str | None
    candidate_state: str | None
    step: int | None
    share: float
    reason: str
    gates_of: str | None
    gates: tuple[Gate, ...]


class Cycle(_Read):
    state: str
    version: str
    samples: int
    reason: str | None
    stats: dict[str, Any] = Field(default_factory=dict)


class Count(_Read):
    name: str
    count: int


class Accounting(_Read):
    joined: int
    late: int
    waiting: int
    refused: tuple[Count, ...]
    counters: tuple[Count, ...]

    @property
    def settled(self) -> int:
        return self.joined + self.late + sum(count.count for count in self.refused)


class Overview(_Read):
    now: str
    requests: int
    rollout: Rollout | None
    versions: tuple[Version, ...]
    cycles: tuple[Cycle, ...]
    accounting: Accounting

    def version(self, name: str) -> Version | None:
        return next((version for version in self.versions if version.version == name), None)

    @property
    def learned(self) -> int:
        """Cycles that sealed a checkpoint which the registry knows of."""
        return sum(cycle.state == "sealed" and self.version(cycle.version) is not None for cycle in self.cycles)

    @property
    def in_flight(self) -> bool:
        return any(version.state in IN_FLIGHT for version in self.versions)
