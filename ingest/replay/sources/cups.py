"""CUPS: telemetry of GitHub Copilot, 21 programmers, August 2022 (microsoft/coderec_programming_states, MIT).

One suggestion is one episode of one turn. The lines become

    shown          the turn, and `shown`
    replay         `replayed`: the same suggestion came on screen again, no new exposure
    browsing       `browsing`, a kind that this service does not know, kept as it came: the person turned to another alternative of
                   the same request, whose text differs from the first in all five cases. It is no replay (that text had not been
                   on screen) and no exposure of its own (the answer is the request's, and one decision settles it)
    accepted       `accepted`, with the characters of the text that was on screen
    rejected       `rejected`; where the line carries an `edit_fraction` above 0, `typed_through` as well
    still_in_code  `persisted`, surviving = 1 - edit_fraction: upstream's EditPercentage is the relative edit distance between the
                   accepted text and what is left of it, 0 when untouched

One suggestion begins with a replay: the recording of its session started after it had been shown. It has a turn, and no `shown`,
because nobody recorded one; hence one suggestion more than exposures. After the last line of a suggestion comes `closed`.

What the file does not say: the model's version, its tokens and their log-probs, sampling, propensities. The seconds of the checks
are those the Copilot client is known to use, their order is recorded; their times are made from them (see the data's README).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationError

from contracts.episode import Episode
from contracts.outcome import Accepted, Closed, Happening, Persisted, Rejected, Replayed, Seconds, Shown, TypedThrough, Unrecognised
from contracts.record import Moment, Name, Record, Share, first_fault
from ingest.replay.source import SOURCES, Answer, BadLine, Event, Fact, Line, Told

N = "1"
_ISSUED = "timeSinceIssuedMs"


class Telemetry(Record):
    """A line as far as it is used; the rest of it is left where it is."""

    model_config = ConfigDict(extra="ignore")

    event_id: Name
    user: Name
    suggestion_id: Name
    ts: Moment
    type: Literal["shown", "replay", "browsing", "accepted", "rejected", "still_in_code"]
    suggestion: str | None = None
    after_s: Seconds | None = None
    edit_fraction: Share | None = None
    measurements: Annotated[dict[str, float], Field(default_factory=dict)]


@SOURCES.add("cups")
class Cups:
    def read(self, lines: Iterable[Line]) -> Iterator[Told]:
        told = sorted((_telemetry(number, line) for number, line in enumerate(lines, 1)), key=lambda line: line.ts)
        last = {line.suggestion_id: line for line in told}
        begun: set[str] = set()
        for line in told:
            if line.suggestion_id not in begun:
                begun.add(line.suggestion_id)
                yield _answer(line)
            for ending, happening in _happenings(line):
                yield Event(line.ts, f"{line.event_id}{ending}", line.suggestion_id, N, happening)
            if last[line.suggestion_id] is line:
                yield Event(line.ts, f"{line.suggestion_id}-closed", line.suggestion_id, None, Closed())

    def facts(self, episodes: Iterable[Episode]) -> Sequence[Fact]:
        kinds: Counter[str] = Counter()
        suggestions = exposures = replays = unresolved = 0
        unchanged: Counter[int] = Counter()
        mostly_gone: Counter[int] = Counter()
        checks: Counter[int] = Counter()
        for episode in episodes:
            suggestions += len(episode.turns)
            happened = [outcome.happening for outcome in episode.outcomes]
            told = Counter(happening.kind for happening in happened)
            exposures += told["shown"]
            replays += told["replayed"]
            unresolved += not (told["accepted"] or told["rejected"])
            kinds.update(set(told))
            surviving = [h.surviving for h in sorted(_checks(happened), key=lambda check: check.after_s)]
            for check, share in enumerate(surviving, 1):
                checks[check] += 1
                unchanged[check] += share == 1.0
                mostly_gone[check] += share < 0.5
        resolved = kinds["accepted"] + kinds["rejected"]
        return (
            Fact("suggestions", suggestions),
            Fact("exposures", exposures),
            Fact("shown again", replays),
            Fact("turned to another alternative", kinds["browsing"], suggestions),
            Fact("accepted", kinds["accepted"], resolved),
            Fact("rejected", kinds["rejected"], resolved),
            Fact("unresolved", unresolved, suggestions),
            Fact("typed through after rejecting", kinds["typed_through"] or None, kinds["rejected"]),
            *(Fact(f"unchanged at check {check}", unchanged[check], checks[check]) for check in sorted(checks)),
            *(Fact(f"more than half gone at check {check}", mostly_gone[check], checks[check]) for check in sorted(checks)),
        )


def _telemetry(number: int, line: Line) -> Telemetry:
    try:
        return Telemetry.model_validate(line)
    except ValidationError as error:
        raise BadLine(number, first_fault(error)) from error


def _answer(line: Telemetry) -> Answer:
    """From the first line of a suggestion. How long people waited is known only where it was shown for the first time."""
    issued_ms = line.measurements.get(_ISSUED)
    return Answer(
        at=line.ts,
        asked_at=line.ts if issued_ms is None else line.ts - timedelta(milliseconds=issued_ms),
        episode=line.suggestion_id,
        n=N,
        person=line.user,
        text=line.suggestion or "",
        latency_ms=issued_ms if line.type == "shown" else None,
    )


def _happenings(line: Telemetry) -> Iterator[tuple[str, Happening]]:
    """With what is appended to the line's id, where one line tells two things."""
    match line.type:
        case "shown":
            yield "", Shown()
        case "replay":
            yield "", Replayed()
        case "browsing":
            yield "", Unrecognised.model_validate({"kind": "browsing", "text": line.suggestion})
        case "accepted":
            yield "", Accepted(characters=len(line.suggestion or ""))
        case "rejected":
            yield "", Rejected()
            if line.edit_fraction:
                yield "-typed", TypedThrough()
        case "still_in_code":
            if line.after_s is not None and line.edit_fraction is not None:
                yield "", Persisted(after_s=line.after_s, surviving=1.0 - line.edit_fraction)


def _checks(happened: Iterable[Happening]) -> list[Persisted]:
    return [happening for happening in happened if isinstance(happening, Persisted)]
