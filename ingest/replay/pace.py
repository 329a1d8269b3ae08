"""When a recorded moment is due: the recorded pauses, divided by a factor.

Enters: recorded moments in order. Leaves: seconds since the replay began. Pauses longer than `longest_pause_s` (recorded seconds)
count as that long, so that a night in the recording need not be waited for.
"""

from __future__ import annotations

from datetime import datetime


class Pace:
    """`speed` 0: everything is due at once."""

    def __init__(self, speed: float, longest_pause_s: float | None = None) -> None:
        self._speed = speed
        self._longest_pause_s = longest_pause_s
        self._last: datetime | None = None
        self._due_s = 0.0

    def due_s(self, at: datetime) -> float:
        """To be asked in recorded order; a moment before an earlier one is due with it."""
        if self._last is not None and at > self._last and self._speed > 0:
            pause_s = (at - self._last).total_seconds()
            if self._longest_pause_s is not None:
                pause_s = min(pause_s, self._longest_pause_s)
            self._due_s += pause_s / self._speed
        self._last = at if self._last is None else max(self._last, at)
        return self._due_s
