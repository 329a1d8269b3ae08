"""Time as a value that is passed in, so that tests decide what time it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]
"""Answers the present moment, aware and in UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def system_clock() -> datetime:
    return datetime.now(UTC)


def to_ms(moment: datetime) -> int:
    """Unix milliseconds, rounded down: the same before and after 1970, and the way back from `from_ms`."""
    return (moment - _EPOCH) // _MS


def from_ms(milliseconds: int) -> datetime:
    return _EPOCH + milliseconds * _MS
