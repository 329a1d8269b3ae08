"""Knobs of the learner's process. What and how a policy learns is in the policy's own file."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def _spare_cores() -> int:
    """All but one: the gateway answers people on the same machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - 1)


class LearnerConfig(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SLIPSTREAM_LEARNER_", frozen=True, extra="ignore")

    threads: Annotated[int, Field(ge=1, le=256, description="compute threads; default: all cores but one")] = Field(
        default_factory=_spare_cores
    )
    tick_seconds: Annotated[float, Field(gt=0, le=3600, description="between two looks at a policy")] = 1.0
    lease_seconds: Annotated[float, Field(ge=0.3, le=600, description="after which a dead learner's place is free")] = 15.0
    progress_seconds: Annotated[float, Field(ge=0, le=60, description="between two reports of a running cycle")] = 1.0
    retry_seconds: Annotated[float, Field(ge=0, le=600, description="wait after a failed cycle; doubles up to 64 times")] = 10.0
    publish_seconds: Annotated[float, Field(ge=0, le=3600, description="wait after MLflow was away")] = 30.0
    microbatch_tokens: Annotated[int, Field(ge=16, description="padded tokens of one forward pass")] = 4096
    final_samples: Annotated[int, Field(ge=1, description="samples on which finished weights are measured")] = 512
    min_ess: Annotated[float, Field(ge=0, le=1, description="effective share of a minibatch; below it no step")] = 0.1
    float32_megabytes: Annotated[float, Field(ge=0, description="larger checkpoints keep the base's precision")] = 100.0
    keep_optimizers: Annotated[int, Field(ge=1, le=100, description="newest optimiser states that are kept")] = 3
