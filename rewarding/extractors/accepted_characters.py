"""Characters that were accepted: 0 for a rejection and for silence. Stands beside the acceptance reward, which is flat in length
and would let answers shrink unnoticed. Nothing to say when nobody decided about text that was there."""

from __future__ import annotations

from contracts.episode import Episode
from contracts.outcome import Accepted
from rewarding.extract import EXTRACTORS, ExtractorOptions, Finding, by_turn, last


@EXTRACTORS.add("accepted_characters")
class AcceptedCharacters(ExtractorOptions):
    def find(self, episode: Episode) -> list[Finding]:
        findings = []
        for turn, outcomes in by_turn(episode):
            decision = last(outcomes, "accepted", "rejected")
            if decision is not None:
                happening = decision.happening
                taken = happening.characters if isinstance(happening, Accepted) else 0
                findings.append(Finding(turn.turn_id, float(taken), (decision.event_id,)))
            elif turn.finish == "silence":
                findings.append(Finding(turn.turn_id, 0.0))
        return findings
