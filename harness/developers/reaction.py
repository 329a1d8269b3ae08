"""What a developer does about an answer, as the events that the client will send, and when.

Enters: a request and the answer to it. Leaves: CloudEvents, as the collector takes them, with the delay after which each is
sent. The developer accepts text that is exactly what the file says next and long enough to be worth a key; some accepted text is
edited or reverted later, so persistence arrives after the episode was closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from harness.developers.plan import Habits, Request
from harness.tiny.asking import accepted, visible

Event = dict[str, Any]
_DECIDE_S = 0.05
_SOURCE = "/harness/developers"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the text (empty: the policy stayed silent) and the ids that later events name."""

    turn_id: str
    episode_id: str
    version: str
    text: str


@dataclass(frozen=True, slots=True)
class Due:
    """An event, and after how many seconds the client sends it. `twice`: the client will send it again though it was taken."""

    event: Event
    after_s: float
    twice: bool


def verdict(answer: Answer, request: Request) -> bool | None:
    """True accepted, False rejected, None nothing was shown. Text of white space only cannot be shown."""
    if not visible(answer.text):
        return None
    return accepted(answer.text, request.question.following)


def react(request: Request, answer: Answer, habits: Habits, policy: str, now: datetime) -> list[Due]:
    dice = request.dice
    skew = timedelta(days=14) if dice.random() < habits.skewed_clock else timedelta()
    broken = dice.random() < habits.broken_client
    shuffled = dice.random() < habits.out_of_order
    turn = f"ep-foreign-{answer.episode_id}.0-0" if dice.random() < habits.foreign_turn else answer.turn_id
    due = []
    for place, (kind, data, after_s) in enumerate(_story(request, answer, habits)):
        occurred = (now + timedelta(seconds=after_s) + skew).isoformat()
        event: Event = {
            "specversion": "1.0",
            "id": f"{answer.episode_id}-{place}",
            "source": _SOURCE,
            "type": f"slipstream.{kind}",
            "time": occurred.removesuffix("+00:00") if broken and place == 0 else occurred,
            "policy": policy,
            "turnid": turn if place == 0 else answer.turn_id,
            "data": data,
        }
        delay = after_s + (dice.uniform(0.0, 2.0) if shuffled else 0.0)
        due.append(Due(event, delay, twice=dice.random() < habits.resent))
    return due


def _story(request: Request, answer: Answer, habits: Habits) -> Iterator[tuple[str, Event, float]]:
    """What happens, in the order and at the seconds at which it happens."""
    dice = request.dice
    taken = verdict(answer, request)
    if taken is not None:
        yield "shown", {}, 0.0
        yield ("accepted", {"characters": len(answer.text)}, _DECIDE_S) if taken else ("rejected", {}, _DECIDE_S)
    if dice.random() >= habits.never_closed:
        yield "closed", {}, 2 * _DECIDE_S
    if taken and dice.random() < habits.looked_at_later:
        yield *_look(request, habits), request.later_s


def _look(request: Request, habits: Habits) -> tuple[str, Event]:
    chance = request.dice.random()
    if chance < habits.reverted:
        return "reverted", {}
    if chance < habits.reverted + habits.edited:
        return "edited", {"surviving": round(request.dice.uniform(0.2, 0.95), 3)}
    return "persisted", {"after_s": round(request.later_s, 3), "surviving": 1.0}
