"""Knobs of the registry process, from `SLIPSTREAM_REGISTRY_*`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class RegistryConfig(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SLIPSTREAM_REGISTRY_", frozen=True, extra="ignore")

    tick_seconds: Annotated[float, Field(gt=0, le=60, description="between two judgements of a candidate")] = 0.3
    lease_seconds: Annotated[float, Field(ge=1, le=300, description="a dead controller is replaced after so long")] = 3.0
    gates_seconds: Annotated[float, Field(ge=0, le=60, description="between two writes of verdicts that moved nothing")] = 0.5
    cache_seconds: Annotated[float, Field(gt=0, le=300, description="between two copies of the routing to the cache")] = 2.0
    sweep_seconds: Annotated[float, Field(gt=0, le=3600, description="between looks for new samples of thrown-out versions")] = 2.0
    mirror_seconds: Annotated[float, Field(gt=0, le=3600, description="between two looks for what MLflow does not show yet")] = 2.0
    console_seconds: Annotated[float, Field(ge=0, le=60, description="age up to which the console repeats an answer")] = 0.5
