"""What a source is: it reads the lines of a recorded file and says what they tell.

Enters: parsed lines of one file, in its order. Leaves: answers and what happened to them, in the order in which they are to be
replayed, under ids that depend on the recording alone. After the join, `facts` computes from episodes what is known of such a
recording. What can go wrong: a line that the source cannot read raises `BadLine` with its number; nothing of the file is replayed
then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from contracts.catalog import Catalog
from contracts.episode import Episode
from contracts.errors import StartError
from contracts.outcome import Happening

Line = Mapping[str, Any]


class BadLine(StartError):
    """A line that is not what its source expects. Lines count from 1."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"line {number}: {what}")


@dataclass(frozen=True, slots=True)
class Answer:
    """Something a model answered. `n` is unique within its episode. None: the recording does not say."""

    at: datetime
    asked_at: datetime
    episode: str
    n: str
    person: str
    text: str
    version: str | None = None
    parent: str | None = None
    latency_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to the answer `n` of an episode, or (None) to the whole of it. `at` is the recorded time."""

    at: datetime
    event_id: str
    episode: str
    n: str | None
    happening: Happening


Told = Answer | Event


@dataclass(frozen=True, slots=True)
class Fact:
    """A count over the joined episodes. `value` None: the recording does not hold what it would be computed from."""

    name: str
    value: int | None
    of: int | None = None


class Source(Protocol):
    def read(self, lines: Iterable[Line]) -> Iterator[Told]:
        """What the lines tell, ordered by `at`."""
        ...

    def facts(self, episodes: Iterable[Episode]) -> Sequence[Fact]: ...


SOURCES: Catalog[Callable[[], Source]] = Catalog("replay source", "ingest.replay.sources")
