"""What developer number n asks and how the clients behave: a pure function of a seed and a request number.

Enters: source files, a seed, a request's number. Leaves: the question, who asks it, and the quirks of the client. Because it is a
function, a driver that was killed goes on with the very same people, files and event ids.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from contracts.record import Record, Share
from harness.tiny.asking import Question, borders, question_at
from harness.tiny.corpus import SourceFile


class Habits(Record):
    """How often clients and people do what real ones do. All are shares of requests or events."""

    developers: Annotated[int, Field(ge=1)] = 240
    resent: Share = 0.03
    out_of_order: Share = 0.05
    never_closed: Share = 0.08
    looked_at_later: Share = 0.35
    edited: Share = 0.25
    reverted: Share = 0.10
    skewed_clock: Share = 0.02
    broken_client: Share = 0.004
    foreign_turn: Share = 0.002
    opted_out: Share = 0.02


@dataclass(frozen=True, slots=True)
class Request:
    """One stop in a file. `later_s`: when the client looks again at accepted text, in seconds after the answer."""

    number: int
    developer: str
    consent: bool
    question: Question
    dice: random.Random
    later_s: float


class Plan:
    """Requests 0, 1, 2, ... of one crowd over one set of files."""

    def __init__(self, source: Sequence[SourceFile], habits: Habits, seed: int) -> None:
        self._source = source
        self._lengths = [len(file.text) for file in source]
        self._habits = habits
        self._seed = seed
        self._points: dict[str, list[int]] = {}

    @property
    def habits(self) -> Habits:
        return self._habits

    def request(self, number: int) -> Request:
        dice = random.Random(f"{self._seed}/{number}")
        who = dice.randrange(self._habits.developers)
        opted_out = random.Random(f"{self._seed}/developer/{who}").random() < self._habits.opted_out
        return Request(
            number=number,
            developer=f"developer-{self._seed}-{who:04d}",
            consent=not opted_out,
            question=self._question(dice),
            dice=dice,
            later_s=dice.uniform(1.0, 15.0),
        )

    def _question(self, dice: random.Random) -> Question:
        while True:
            (file,) = dice.choices(self._source, weights=self._lengths)
            points = self._points.get(file.path)
            if points is None:
                points = self._points[file.path] = borders(file.text)
            if points:
                return question_at(file.path, file.text, dice.choice(points))
