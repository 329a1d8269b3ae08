"""When the demo does what: a pure decision from what is to be seen, so that it goes on rightly wherever it was interrupted.

Enters: the overview and what was done before. Leaves: the next thing to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.demo.overview import IN_FLIGHT, Overview


class Act(StrEnum):
    WATCH = "watch"
    SABOTAGE = "sabotage"
    FINISH = "finish"


@dataclass(frozen=True)
class Script:
    """`cycles` the learner must have sealed; the bad checkpoint comes after `sabotage_after` of them, once all are decided."""

    cycles: int
    sabotage_after: int

    def next(self, seen: Overview, sabotaged: str | None) -> Act:
        if sabotaged is None:
            ripe = seen.learned >= self.sabotage_after and not seen.in_flight
            return Act.SABOTAGE if ripe else Act.WATCH
        bad = seen.version(sabotaged)
        if bad is None or bad.state in IN_FLIGHT:
            return Act.WATCH
        return Act.FINISH if seen.learned >= self.cycles and not seen.in_flight else Act.WATCH
