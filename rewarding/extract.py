"""What an extractor is: a frozen record of options that looks at an episode and states findings, or has nothing to say.

Enters: an `Episode`. Leaves: findings, each with the events it rests on. An extractor never raises an episode away: where there
is no evidence it stays silent, which is not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from contracts.catalog import Catalog
from contracts.episode import Episode
from contracts.errors import StartError
from contracts.outcome import Outcome
from contracts.policy import Options, RewardSpec
from contracts.record import Record, first_fault
from contracts.turn import Turn


@dataclass(frozen=True)
class Finding:
    """A value for one turn (`turn_id`) or for the whole episode (None), and the event ids it rests on."""

    turn_id: str | None
    value: float
    evidence: tuple[str, ...] = ()


class Extractor(Protocol):
    def find(self, episode: Episode) -> Sequence[Finding]: ...


class ExtractorOptions(Record):
    """Base of extractors: options are its fields, checked when a spec is loaded."""


EXTRACTORS: Catalog[Callable[..., Extractor]] = Catalog("reward extractor", "rewarding.extractors")


def build(spec: RewardSpec) -> tuple[tuple[str, float, Extractor], ...]:
    """Each part's name, weight and extractor. Raises `StartError` that names the part and the option at fault."""
    return tuple((part.extractor, part.weight, _one(spec.id, part.extractor, part.options)) for part in spec.parts)


def _one(spec: str, name: str, options: Options) -> Extractor:
    try:
        return EXTRACTORS.get(name)(**options)
    except ValidationError as error:
        raise StartError(f"reward spec {spec}: extractor {name}: {first_fault(error)}") from error


def by_turn(episode: Episode) -> Iterator[tuple[Turn, list[Outcome]]]:
    """Each turn with its outcomes in their total order; an outcome that names no turn belongs to the only one, if there is one."""
    for turn in episode.turns:
        alone = len(episode.turns) == 1
        yield turn, [o for o in episode.outcomes if o.turn_id == turn.turn_id or (o.turn_id is None and alone)]


def last(outcomes: Sequence[Outcome], *kinds: str) -> Outcome | None:
    """The newest of some kinds: a changed mind replaces the former one."""
    return next((outcome for outcome in reversed(outcomes) if outcome.happening.kind in kinds), None)
