"""By what a person is recognised wherever something of them may lie: their hashes, and the ids of what was theirs.

Enters: bytes of a record. Leaves: the record, if it is theirs. Ids are kept as digests, so that a deletion can be resumed from the
database when the rows that named them are gone already.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from contracts.dead_letter import DeadLetter
from contracts.episode import EpisodeClosed
from contracts.errors import Poison
from contracts.outcome import Outcome
from contracts.record import Record
from contracts.topics import EPISODES, OUTCOMES, TURNS, grave
from contracts.turn import Turn
from infra.clock import to_ms
from infra.people.gone import digest

TOPICS = (TURNS, grave(TURNS), OUTCOMES, grave(OUTCOMES), EPISODES, grave(EPISODES))
"""Where people's words travel, and the ids of what was theirs; turns first, since they tell which of the rest is somebody's."""

_KINDS: dict[str, type[Record]] = {TURNS.name: Turn, OUTCOMES.name: Outcome, EPISODES.name: EpisodeClosed}


@dataclass
class Trace:
    """`until_ms`: what a person did after that is not meant. `erased`: digests of ids of turns and episodes."""

    subjects: frozenset[str]
    until_ms: int
    erased: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._needles = [subject.encode() for subject in self.subjects]

    def find(self, topic: str, value: bytes) -> Record | None:
        """The turn, outcome, pointer to an episode or dead letter in `value`, if it is this person's."""
        if topic not in _KINDS:
            return self._in_letter(value)
        if topic == TURNS.name and not self.erased and not self._named(value):
            return None
        try:
            record = _KINDS[topic].decode(value)
        except Poison:
            return None
        return record if self.owns(record) else None

    def owns(self, record: Record) -> bool:
        if isinstance(record, Turn):
            mine = record.subject in self.subjects and to_ms(record.started_at) <= self.until_ms
            return mine or digest(record.turn_id) in self.erased
        if isinstance(record, Outcome):
            if record.turn_id is not None:
                return digest(record.turn_id) in self.erased
            return digest(record.episode_id) in self.erased and to_ms(record.received_at) <= self.until_ms
        return isinstance(record, EpisodeClosed) and digest(record.episode_id) in self.erased

    def learn(self, turn: Turn) -> None:
        """What is told about this turn is theirs too."""
        self.erased |= {digest(turn.turn_id), digest(turn.episode_id)}

    def _in_letter(self, value: bytes) -> DeadLetter | None:
        try:
            letter = DeadLetter.decode(value)
        except Poison:
            return None
        if to_ms(letter.at) > self.until_ms:
            return None
        theirs = self._named(letter.value) or (letter.key is not None and digest(letter.key) in self.erased)
        return letter if theirs else None

    def _named(self, value: bytes) -> bool:
        return any(needle in value for needle in self._needles)
