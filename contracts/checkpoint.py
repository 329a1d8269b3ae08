"""Sealed weights and what is known of them. A version name is never used twice; every cache is keyed by it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.record import Finite, Moment, Name, Record

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SealedFile(Record):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    sha256: Sha256
    size: Annotated[int, Field(ge=0, description="bytes")]


class Checkpoint(Record):
    """`samples` is the digest of the sorted ids it was trained on; the rows say which they were."""

    version: Name
    policy: Name
    number: Annotated[int, Field(ge=0)]
    parent: Name | None
    kind: Literal["full", "lora"]
    uri: str
    files: Annotated[tuple[SealedFile, ...], Field(min_length=1)]
    samples: Sha256 | None
    sample_count: Annotated[int, Field(ge=0)]
    spec: Name | None
    cycle_id: Name | None
    metrics: dict[str, Finite]
    created_at: Moment


class Metric(Record):
    """A figure with its interval and its size; None where nothing could be measured."""

    name: Name
    value: Finite | None
    low: Finite | None = None
    high: Finite | None = None
    n: Annotated[int, Field(ge=0)] = 0


class EvalReport(Record):
    """What a bench found out about one version. One report per version and suite."""

    version: Name
    policy: Name
    suite: Name
    metrics: tuple[Metric, ...]
    error: str | None = None
    created_at: Moment

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)
