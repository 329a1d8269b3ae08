"""Knobs of the retention process, from `SLIPSTREAM_RETAIN_*`. How long what is kept stands in the policies."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class RetainConfig(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SLIPSTREAM_RETAIN_", frozen=True, extra="ignore")

    sweep_seconds: Annotated[float, Field(gt=0, le=86_400, description="between looks for what was kept long enough")] = 3600.0
    finish_seconds: Annotated[float, Field(gt=0, le=3600, description="between looks for deletions that had to wait")] = 10.0
    batch: Annotated[int, Field(ge=1, le=5000, description="episodes, events or samples that go in one transaction")] = 200
