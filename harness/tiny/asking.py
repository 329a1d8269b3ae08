"""The asking format: how a developer's question to the tiny policy and its answer are written, and what is accepted.

Enters: a file's text and a point in it. Leaves: the prompt text (context, then `<ask>`), the answer that the base
policy is taught, and whether a shown text is what the file says next. Goes wrong: nothing raises; a file too short to
ask in gives no points.

An answer is text and `<end>`, or `<silence>` and `<end>`. Decoded without special tokens, silence is empty text.
"""

import random
import re
from dataclasses import dataclass

from harness.tiny.words import ASK

CONTEXT_CHARACTERS = 280  # about 93 tokens
LONGEST_ANSWER = 12  # tokens, `<end>` included
MIN_VISIBLE = 3  # characters that are not space

_PIECE = re.compile(r" ?[^\W\d_]+| ?\d+| ?(?:[^\w\s]|_)+|\s+(?!\S)|\s+")


@dataclass(frozen=True, slots=True)
class Question:
    """A developer's stop in a file: what stands before it, and what the file says next."""

    path: str
    at: int  # characters from the start of the file
    context: str
    following: str

    @property
    def prompt(self) -> str:
        """What the policy is asked: the end of the context, then `<ask>`."""
        return self.context + ASK


def visible(text: str) -> int:
    """Characters that are not space."""
    return sum(not character.isspace() for character in text)


def question_at(path: str, text: str, at: int) -> Question:
    """The question a developer asks at one point of a file."""
    return Question(path, at, text[max(0, at - CONTEXT_CHARACTERS) : at], text[at : at + CONTEXT_CHARACTERS])


def borders(text: str) -> list[int]:
    """Points between words after which enough is left to be asked for."""
    last = len(text)
    for _ in range(MIN_VISIBLE):
        last = len(text[:last].rstrip()) - 1
    return [piece.start() for piece in _PIECE.finditer(text) if 0 < piece.start() <= last]


def random_questions(path: str, text: str, count: int, rng: random.Random) -> list[Question]:
    """At most `count` questions at random points between words, in the order of the file."""
    between = borders(text)
    if not between:
        return []
    return [question_at(path, text, at) for at in sorted({rng.choice(between) for _ in range(count)})]


def accepted(answer: str, following: str) -> bool:
    """Whether a developer accepts a shown text: long enough to be worth a key, and what the file says next."""
    return visible(answer) >= MIN_VISIBLE and following.startswith(answer)
