"""What a suite is: options that are checked, and a run against one version that answers with metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from contracts.catalog import Catalog
from contracts.checkpoint import Metric
from harness.developers.gateway import Client


class Suite(Protocol):
    async def run(self, client: Client, policy: str, version: str) -> tuple[Metric, ...]: ...


SUITES: Catalog[Callable[..., Suite]] = Catalog("bench suite", "harness.bench.suites")
