"""Knobs of a gateway process, from `SLIPSTREAM_SERVING_*`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from contracts.record import Name


class ServingConfig(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SLIPSTREAM_SERVING_", frozen=True, extra="ignore")

    replica: Annotated[Name | None, Field(description="this gateway's name; default: host and port")] = None
    max_versions: Annotated[int, Field(ge=2, le=64, description="of one policy in memory, champion and candidate included")] = 6
    route_seconds: Annotated[float, Field(gt=0, le=10, description="between looks for a new routing")] = 0.2
    sql_seconds: Annotated[float, Field(gt=0, le=60, description="between looks for it in the database, beside the cache")] = 2.0
    retry_seconds: Annotated[float, Field(gt=0, le=3600, description="before a version that failed to load is tried again")] = 15.0
    load_seconds: Annotated[float, Field(gt=0, le=3600, description="that a request for a version by name waits for it")] = 60.0
    answer_seconds: Annotated[float, Field(gt=0, le=3600, description="after which an answer ends with what there is")] = 60.0
    gather_ms: Annotated[float, Field(ge=0, le=100, description="milliseconds in which turns are gathered into one write")] = 2.0
    flush_seconds: Annotated[float, Field(gt=0, le=60, description="between writes of counters, spooled turns, replica states")] = (
        1.0
    )
    people_seconds: Annotated[float, Field(gt=0, le=60, description="between looks for who opted out, and for new keys")] = 2.0
    episodes: Annotated[int, Field(ge=1, le=10_000_000, description="of which the arm is remembered, per policy")] = 20_000
    max_body_kb: Annotated[int, Field(ge=1, le=65_536, description="kilobytes of a request")] = 4096
