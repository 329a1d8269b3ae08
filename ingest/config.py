"""Knobs of the ingest processes, from `SLIPSTREAM_INGEST_*`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class IngestConfig(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SLIPSTREAM_INGEST_", frozen=True, extra="ignore")

    max_event_bytes: Annotated[int, Field(ge=256, le=1 << 20, description="bytes of one event, as JSON")] = 65_536
    max_batch_events: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    max_body_kb: Annotated[int, Field(ge=1, le=65_536, description="kilobytes of a request, inflated")] = 8_192
    gather_ms: Annotated[float, Field(ge=0, le=100, description="milliseconds in which events are gathered into one append")] = 1.0
    spool_mb: Annotated[int, Field(ge=0, le=1 << 20, description="megabytes of a topic on this disk while the log is away")] = 1_024
    drain_seconds: Annotated[float, Field(gt=0, le=60, description="between tries to hand the spool to the log")] = 0.5
    key_seconds: Annotated[float, Field(gt=0, le=300, description="for which a key is not looked up again")] = 5.0
    trim_seconds: Annotated[float, Field(ge=1, description="between removals of what the log kept long enough")] = 3600.0
    tick_seconds: Annotated[float, Field(gt=0, le=60, description="between looks for quiet episodes and orphans")] = 0.5
