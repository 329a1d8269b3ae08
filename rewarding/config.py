"""Knobs of the rewarding process, from `SLIPSTREAM_REWARDING_*`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class RewardingConfig(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SLIPSTREAM_REWARDING_", frozen=True, extra="ignore")

    tick_seconds: Annotated[float, Field(gt=0, le=60, description="between looks for samples that fell behind their reward")] = 1.0
