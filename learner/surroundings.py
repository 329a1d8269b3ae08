"""What a learner works with, and how it is told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from contracts.errors import SlipstreamError
from infra.clock import Clock
from infra.db.query import Engine
from learner.config import LearnerConfig

Announce = Callable[[str], None]


class Stopped(SlipstreamError):
    """The process was asked to end in the middle of a cycle."""


@dataclass(frozen=True)
class Surroundings:
    """`announce` is told of each point of a cycle as it is reached; it may raise."""

    engine: Engine
    artifacts: Path
    config: LearnerConfig
    clock: Clock
    stop: threading.Event
    announce: Announce = field(default=lambda point: None)
