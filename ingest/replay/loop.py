"""Tell the service what a recording tells, in its order and at its pace; then wait until it is joined.

Enters: steps in recorded order. Leaves: turns on the topic `turns` and events at the collector; what was refused. A step counts as
done when log and collector have it; what is due together goes together. While one of them is away the same steps are told again;
`stop` ends it between two tries, and what is done stays done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence

from contracts.errors import Retry
from contracts.topics import TURNS
from infra.db.engine import reading
from infra.db.query import Engine
from infra.eventlog.port import Entry, EventLog
from infra.stream import patiently
from ingest.replay.collector import Busy, Collector, Refused
from ingest.replay.pace import Pace
from ingest.replay.progress import Progress
from ingest.replay.readback import Fates, fates
from ingest.replay.screen import Screen
from ingest.replay.source import Answer, Told
from ingest.replay.translate import Replay

AT_ONCE = 200
_LOOK_S = 0.25


class Teller:
    def __init__(self, how: Replay, log: EventLog, collector: Collector, progress: Progress, screen: Screen) -> None:
        self._how = how
        self._log = log
        self._collector = collector
        self._progress = progress
        self._screen = screen

    def tell(self, told: Sequence[Told], done: int, pace: Pace, stop: threading.Event) -> list[Refused]:
        """From step `done` on."""
        refused: list[Refused] = []
        begun = time.monotonic()
        while done < len(told):
            due = begun + pace.due_s(told[done].at)
            if stop.wait(max(0.0, due - time.monotonic())):
                break
            end = done + 1
            while end < min(len(told), done + AT_ONCE) and begun + pace.due_s(told[end].at) <= time.monotonic():
                end += 1
            try:
                for attempt in patiently(stop):
                    with attempt:
                        refused += self._hand_over(told[done:end], stop)
            except Retry:
                if not stop.is_set():
                    raise
                break
            done = end
            self._progress.write(done)
            self._screen.done(done)
        return refused

    def _hand_over(self, told: Sequence[Told], stop: threading.Event) -> list[Refused]:
        answers = [one for one in told if isinstance(one, Answer)]
        turns = [self._how.turn(answer) for answer in answers if answer.episode not in self._how.withheld]
        events = [self._how.event(one) for one in told if not isinstance(one, Answer)]
        try:
            if turns:
                self._log.append(TURNS.name, [Entry(turn.episode_id, turn.encode()) for turn in turns])
            return self._collector.send(events) if events else []
        except Retry as away:
            self._screen.say(f"waiting: {away}")
            if isinstance(away, Busy):
                stop.wait(away.after_s)
            raise


def wait_at_rest(engine: Engine, events: Collection[str], within_s: float, screen: Screen, stop: threading.Event) -> Fates:
    """What became of them, as soon as that is known of all of them, or when the time is over."""
    deadline = time.monotonic() + within_s
    while True:
        with reading(engine) as session:
            found = fates(session, events)
        screen.done(found.at_rest)
        if found.at_rest >= len(events) or time.monotonic() >= deadline or stop.wait(_LOOK_S):
            return found
