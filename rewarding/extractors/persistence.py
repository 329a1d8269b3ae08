"""How much of what was accepted is gone by the last look at it.

value = surviving - 1, from -1 (nothing is left) to 0 (all is left); `surviving` is the share of accepted characters of the newest
of: a persistence check, an edit, a revert (which leaves nothing). Nothing to say when nothing was accepted or nobody looked.
After Cursor's measure of edits that persist in the codebase.
"""

from __future__ import annotations

from contracts.episode import Episode
from contracts.outcome import Edited, Outcome, Persisted
from rewarding.extract import EXTRACTORS, ExtractorOptions, Finding, by_turn, last


@EXTRACTORS.add("persistence")
class Persistence(ExtractorOptions):
    def find(self, episode: Episode) -> list[Finding]:
        findings = []
        for turn, outcomes in by_turn(episode):
            decision = last(outcomes, "accepted", "rejected")
            look = last(outcomes, "persisted", "edited", "reverted")
            if decision is not None and decision.happening.kind == "accepted" and look is not None:
                findings.append(Finding(turn.turn_id, surviving(look) - 1.0, (decision.event_id, look.event_id)))
        return findings


def surviving(look: Outcome) -> float:
    happening = look.happening
    return happening.surviving if isinstance(happening, Persisted | Edited) else 0.0
