"""What a source tells, as the service takes it: turns for the log, events for the collector.

Enters: what was told, and the replay's name. Leaves: a `Turn`, or an event in the CloudEvents wire format. Every id begins with the
source and the policy and goes on with the recorded one, so the same file replayed twice is told once, and replayed to two policies
is told to each. What can go wrong: a recorded id that cannot be part of a name raises `StartError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from contracts.errors import StartError
from contracts.ids import subject_hash, turn_id
from contracts.record import first_fault
from contracts.turn import Turn, VersionSpan
from infra.people.scan import kinds
from ingest.replay.source import Answer, Event

Wire = dict[str, Any]


@dataclass(frozen=True)
class Replay:
    """One recording going to one policy. People's names are hashed with the deployment's key, as serving does.

    `withheld`: recorded episodes of people who do not want to be recorded here. Nothing of them is sent but ids that say so.
    """

    source: str
    policy: str
    subject_key: bytes
    withheld: frozenset[str] = frozenset()

    def person(self, recorded: str) -> str:
        """A person's name as `slipstream subject` knows it."""
        return f"{self.source}/{recorded}"

    def episode_id(self, recorded: str) -> str:
        return f"{self.source}:{self.policy}:{recorded}"

    def event_id(self, recorded: str) -> str:
        return f"{self.source}:{self.policy}:{recorded}"

    def turn(self, answer: Answer) -> Turn:
        """Text, times and who answered are known; tokens, log-probs and sampling are not, so that it is never trained on."""
        episode = self.episode_id(answer.episode)
        try:
            return Turn(
                turn_id=turn_id(episode, answer.n),
                episode_id=episode,
                parent_turn_id=None if answer.parent is None else turn_id(episode, answer.parent),
                policy=self.policy,
                subject=subject_hash(self.subject_key, self.person(answer.person)),
                consent=True,
                prompt_ids=None,
                completion_ids=None,
                logps=None,
                spans=() if answer.version is None else (VersionSpan(version=answer.version, start=0, end=0),),
                text=answer.text,
                sampling=None,
                secrets=kinds(answer.text),
                finish="stop" if answer.text.strip() else "empty",
                arm="pinned",
                propensity=1.0,
                started_at=answer.asked_at,
                latency_ms=answer.latency_ms,
            )
        except ValidationError as error:
            raise StartError(f"answer {answer.n!r} of {answer.episode!r}: {first_fault(error)}") from error

    def event(self, event: Event) -> Wire:
        """A CloudEvent in structured form."""
        episode = self.episode_id(event.episode)
        happening = event.happening.model_dump(mode="json")
        wire: Wire = {
            "specversion": "1.0",
            "id": self.event_id(event.event_id),
            "source": f"/replay/{self.source}",
            "type": f"slipstream.{happening.pop('kind')}",
            "time": event.at.isoformat(),
            "policy": self.policy,
            "episodeid": episode,
        }
        consent = event.episode not in self.withheld
        if event.n is not None:
            wire["turnid"] = turn_id(episode, event.n, consent)
        if not consent:
            wire["consent"] = False
        elif happening:
            wire["data"] = happening
        return wire
