"""Time as a value that is passed in, so that tests decide what time it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Answers the present moment, aware and in UTC."""


def system_clock() -> datetime:
    return datetime.now(UTC)


def to_ms(moment: datetime) -> int:
    """Unix milliseconds."""
    return int(moment.timestamp() * 1000)


def from_ms(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
