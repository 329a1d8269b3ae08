"""How much a client may use. Enters: nothing, or the knobs that differ. Goes wrong: a value out of its range is a `ValueError`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

RANGES: Final[dict[str, tuple[float, float]]] = {
    "batch_events": (1, 1_000),
    "linger_s": (0.0, 60.0),
    "queue_events": (1, 1_000_000),
    "queue_bytes": (1_024, 1 << 30),
    "event_bytes": (256, 1 << 20),
    "spool_bytes": (1_024, 1 << 34),
    "spool_age_s": (1.0, 30 * 86_400.0),
    "request_s": (0.1, 120.0),
    "exit_s": (0.0, 60.0),
    "wait_s": (0.05, 3_600.0),
    "denied_wait_s": (0.05, 3_600.0),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Eleven knobs. Those that end in `_s` are seconds, those in `_bytes` bytes, those in `_events` events."""

    batch_events: int = 100
    """Events of one request, and of one file in the spool."""
    linger_s: float = 1.0
    """An event waits at most this long for others to travel with."""
    queue_events: int = 10_000
    """Events in memory; what comes on top is dropped as `queue_full`."""
    queue_bytes: int = 8 << 20
    event_bytes: int = 65_536
    """The collector's own limit for one event; what is larger is dropped as `too_large` before it is sent."""
    spool_bytes: int = 32 << 20
    """On disk (or, without a disk, in memory); when it is full the oldest go, as `spool_full`."""
    spool_age_s: float = 7 * 86_400.0
    """What lies longer is dropped as `too_old`: the log would not join it any more."""
    request_s: float = 10.0
    exit_s: float = 2.0
    """How long the end of the program may be held up."""
    wait_s: float = 60.0
    """The longest wait between two tries, unless the collector asks for a longer one."""
    denied_wait_s: float = 60.0
    """The first wait after a key was turned down; doubles, up to an hour."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value: Any = getattr(self, field.name)
            low, high = RANGES[field.name]
            if not low <= value <= high:
                raise ValueError(f"{field.name}: expected {low:g} to {high:g}, got {value!r}")
