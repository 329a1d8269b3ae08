"""1 when a shown suggestion was accepted in the end, 0 when it was rejected. A rate once averaged; for gates, not for pay."""

from __future__ import annotations

from contracts.episode import Episode
from rewarding.extract import EXTRACTORS, ExtractorOptions, Finding, by_turn, last


@EXTRACTORS.add("accepted")
class AcceptedOrNot(ExtractorOptions):
    def find(self, episode: Episode) -> list[Finding]:
        return [
            Finding(turn.turn_id, float(decision.happening.kind == "accepted"), (decision.event_id,))
            for turn, outcomes in by_turn(episode)
            if (decision := last(outcomes, "accepted", "rejected")) is not None
        ]
