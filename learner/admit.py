"""Which samples a cycle may learn from: oldest first, within bounds, and what is left out is counted by reason.

Enters: samples that wait, the lineage of the weights to be trained, what the model can read. Leaves: a selection, then (in the
caller's transaction) its claim. A sample that can never be trained gets its final state and a reason; one that a full share of
its subject keeps out stays READY for the next cycle. What can go wrong: a sample revised between the look and the claim is not
claimed, because it is not what was judged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from contracts.errors import Poison
from contracts.ids import episode_of
from contracts.reward import Sample, Segment
from contracts.states import CheckpointState, SampleState
from infra.db.query import Session, col, select, update
from infra.db.tables.registry import VersionRow
from infra.db.tables.rewarding import SampleRow
from learner.lineage import ancestors

_AT_ONCE = 1000
_ROUNDING = 1e-4
"""A log-prob may exceed 0 by this much: float32 on another machine."""


@dataclass(frozen=True)
class Readable:
    """What the model can take: ids below `vocabulary`, at most `positions` tokens."""

    vocabulary: int
    positions: int


@dataclass(frozen=True)
class Rules:
    """`lags`: version to its distance from the weights to be trained, whole lineage. `condemned`: rolled back or rejected."""

    lags: Mapping[str, int]
    condemned: frozenset[str]
    max_lag: int
    readable: Readable


@dataclass(frozen=True)
class Exclusion:
    state: SampleState
    reason: str


@dataclass
class Selection:
    samples: list[Sample] = field(default_factory=list)
    by_lag: Counter[str] = field(default_factory=Counter)
    excluded: dict[tuple[str, int], Exclusion] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)

    def reasons(self) -> dict[str, int]:
        return dict(Counter(exclusion.reason for exclusion in self.excluded.values()))


def rules(session: Session, policy: str, parent: str, max_lag: int, readable: Readable) -> Rules:
    fallen = (CheckpointState.ROLLED_BACK, CheckpointState.REJECTED)
    rows = session.exec(select(VersionRow.version).where(VersionRow.policy == policy, col(VersionRow.state).in_(fallen))).all()
    lags = {version: lag for lag, version in enumerate([parent, *ancestors(session, parent)])}
    return Rules(lags, frozenset(rows), max_lag, readable)


def admissible(counts: Mapping[str, int], share: float, most: int) -> int:
    """The largest batch, up to `most`, in which no subject has more than `share`. `counts`: samples by subject."""
    size = min(most, sum(counts.values()))
    if share >= 1.0:
        return size
    # What a batch may hold grows with its size, so every size above this one's holdings is out as well.
    while (fits := sum(min(count, subject_cap(share, size)) for count in counts.values())) < size:
        size = fits
    return size


def subject_cap(share: float, size: int) -> int:
    return math.floor(share * size + 1e-9)


def judge(sample: Sample, rules: Rules) -> Exclusion | None:
    """None: may be trained."""
    trained = [segment for segment in sample.segments if segment.trainable and segment.completion_ids]
    if not trained:
        return Exclusion(SampleState.EXCLUDED, "no_tokens")
    if any(not segment.prompt_ids for segment in trained):
        return Exclusion(SampleState.EXCLUDED, "no_prompt")
    if any(not _sound_logps(segment) for segment in trained):
        return Exclusion(SampleState.EXCLUDED, "bad_logps")
    if any(segment.temperature <= 0.0 for segment in trained):
        return Exclusion(SampleState.EXCLUDED, "greedy")
    if any(max(*segment.prompt_ids, *segment.completion_ids) >= rules.readable.vocabulary for segment in trained):
        return Exclusion(SampleState.EXCLUDED, "bad_tokens")
    if any(len(segment.prompt_ids) + len(segment.completion_ids) > rules.readable.positions for segment in trained):
        return Exclusion(SampleState.EXCLUDED, "too_long")
    versions = _versions(trained)
    if versions & rules.condemned:
        return Exclusion(SampleState.QUARANTINED, "quarantined")
    if not versions or not versions <= rules.lags.keys():
        return Exclusion(SampleState.EXCLUDED, "off_lineage")
    if _lag(versions, rules) > rules.max_lag:
        return Exclusion(SampleState.EXCLUDED, "stale")
    return None


def select_samples(session: Session, policy: str, rules: Rules, share: float, most: int) -> Selection:
    """Oldest first, until a full batch is found or nothing waits any more."""
    found = Selection()
    good: list[Sample] = []
    by_subject: Counter[str] = Counter()
    cap = most if share >= 1.0 else subject_cap(share, most)
    for row in _waiting(session, policy):
        if by_subject[row.subject] >= cap:
            found.held["subject_share"] += 1
            continue
        try:
            sample = Sample.decode(row.body)
            verdict = judge(sample, rules)
        except Poison:
            verdict = Exclusion(SampleState.EXCLUDED, "unreadable")
        if verdict is not None:
            found.excluded[(row.sample_id, row.revision)] = verdict
            continue
        good.append(sample)
        by_subject[row.subject] += 1
        if len(good) >= most:
            break
    size = admissible(by_subject, share, most)
    cap = size if share >= 1.0 else subject_cap(share, size)
    taken: Counter[str] = Counter()
    for sample in good:
        if len(found.samples) < size and taken[sample.subject] < cap:
            taken[sample.subject] += 1
            found.samples.append(sample)
            found.by_lag[str(_lag(_versions([s for s in sample.segments if s.trainable and s.completion_ids]), rules))] += 1
        else:
            found.held["subject_share"] += 1
    return found


def claim(session: Session, cycle_id: str, samples: Sequence[Sample]) -> list[Sample]:
    """Mark as this cycle's those that still wait at the revision that was judged, and answer them."""
    held = []
    order = {sample.sample_id: number for number, sample in enumerate(samples)}
    for chunk in _chunks(sorted(samples, key=lambda sample: sample.sample_id)):  # as the rewarder locks them
        waiting = session.exec(
            select(SampleRow.sample_id, SampleRow.revision)
            .where(col(SampleRow.sample_id).in_([s.sample_id for s in chunk]), SampleRow.state == SampleState.READY)
            .order_by(col(SampleRow.sample_id))
            .with_for_update()
        ).all()
        fit = set(waiting)
        got = [sample for sample in chunk if (sample.sample_id, sample.revision) in fit]
        session.execute(
            update(SampleRow)
            .where(col(SampleRow.sample_id).in_([sample.sample_id for sample in got]))
            .values(state=SampleState.CLAIMED, cycle_id=cycle_id)
        )
        held += got
    return sorted(held, key=lambda sample: order[sample.sample_id])


def exclude(session: Session, excluded: Mapping[tuple[str, int], Exclusion]) -> None:
    """Give each its final state, unless it was revised or taken meanwhile."""
    for (sample_id, revision), exclusion in excluded.items():
        session.execute(
            update(SampleRow)
            .where(
                col(SampleRow.sample_id) == sample_id,
                col(SampleRow.revision) == revision,
                col(SampleRow.state) == SampleState.READY,
            )
            .values(state=exclusion.state, reason=exclusion.reason)
        )


def episodes(samples: Sequence[Sample]) -> list[str]:
    """The episodes whose turns these samples are."""
    return sorted({episode_of(segment.turn_id) for sample in samples for segment in sample.segments})


def _waiting(session: Session, policy: str) -> Iterator[SampleRow]:
    query = (
        select(SampleRow)
        .where(SampleRow.policy == policy, SampleRow.state == SampleState.READY)
        .order_by(col(SampleRow.sampled_ms), col(SampleRow.sample_id))
        .execution_options(yield_per=_AT_ONCE)
    )
    yield from session.exec(query)


def _sound_logps(segment: Segment) -> bool:
    logps = segment.logps
    if logps is None or len(logps) != len(segment.completion_ids):
        return False
    return all(math.isfinite(logp) and logp <= _ROUNDING for logp in logps)


def _versions(segments: Sequence[Segment]) -> set[str]:
    return {span.version for segment in segments for span in segment.spans if span.end > span.start}


def _lag(versions: set[str], rules: Rules) -> int:
    """The most distant version that sampled any of it."""
    return max((rules.lags[version] for version in versions), default=0)


def _chunks(samples: Sequence[Sample]) -> Iterator[Sequence[Sample]]:
    for start in range(0, len(samples), _AT_ONCE):
        yield samples[start : start + _AT_ONCE]
