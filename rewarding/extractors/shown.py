"""1 when the suggestion was on screen, 0 when the policy said nothing. Nothing to say when the client never told."""

from __future__ import annotations

from contracts.episode import Episode
from rewarding.extract import EXTRACTORS, ExtractorOptions, Finding, by_turn, last

_QUIET = ("silence", "empty")


@EXTRACTORS.add("shown")
class ShownOrNot(ExtractorOptions):
    def find(self, episode: Episode) -> list[Finding]:
        findings = []
        for turn, outcomes in by_turn(episode):
            seen = last(outcomes, "shown", "accepted", "rejected")
            if seen is not None:
                findings.append(Finding(turn.turn_id, 1.0, (seen.event_id,)))
            elif turn.finish in _QUIET:
                findings.append(Finding(turn.turn_id, 0.0))
        return findings
