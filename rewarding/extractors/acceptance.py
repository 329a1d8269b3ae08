"""Was a shown suggestion taken?

value = `accepted` if the last decision was to accept, `rejected` if it was to reject; range and unit are those of the options.
Nothing to say when it was shown and nobody decided, or was never shown. The defaults are the figures that Cursor published as an
illustration for Tab: with +0.75 and -0.25 it pays to show a suggestion when it is accepted more often than one time in four.
"""

from __future__ import annotations

from contracts.episode import Episode
from contracts.record import Finite
from rewarding.extract import EXTRACTORS, ExtractorOptions, Finding, by_turn, last


@EXTRACTORS.add("acceptance")
class Acceptance(ExtractorOptions):
    accepted: Finite = 0.75
    rejected: Finite = -0.25

    def find(self, episode: Episode) -> list[Finding]:
        findings = []
        for turn, outcomes in by_turn(episode):
            decision = last(outcomes, "accepted", "rejected")
            if decision is not None:
                value = self.accepted if decision.happening.kind == "accepted" else self.rejected
                findings.append(Finding(turn.turn_id, value, (decision.event_id,)))
        return findings
