"""Engines by name: what turns a prompt into sampled tokens. A new one is one file here."""

from __future__ import annotations

from collections.abc import Callable

from contracts.catalog import Catalog
from contracts.policy import Policy
from serving.engines.port import Engine

ENGINES: Catalog[Callable[[Policy], Engine]] = Catalog("engine", "serving.engines")
