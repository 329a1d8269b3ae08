"""Who may be trained on, in which order, and what is said of the others."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.reward import Sample, Segment
from contracts.turn import VersionSpan
from infra.db.engine import reading, writing
from infra.db.query import select
from infra.db.tables.rewarding import SampleRow
from learner.admit import Readable, Rules, admissible, claim, judge, select_samples, subject_cap
from tests.unit.learner.conftest import World, make_sample

RULES = Rules(
    lags={"tab-v0007": 0, "tab-v0005": 1, "tab-v0002": 2, "tab-v0001": 3},
    condemned=frozenset({"tab-v0006"}),
    max_lag=2,
    readable=Readable(vocabulary=64, positions=40),
)


@pytest.fixture
def sound(segments: tuple[Segment, ...]) -> Sample:
    return make_sample(1, segments[0], version="tab-v0007")


def changed(sample: Sample, **changes: object) -> Sample:
    return sample.model_copy(update={"segments": (sample.segments[0].model_copy(update=changes),)})


def reason(sample: Sample) -> str | None:
    found = judge(sample, RULES)
    return found.reason if found else None


def test_a_sound_sample_is_taken(sound: Sample) -> None:
    assert reason(sound) is None


@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf, 0.5])
def test_a_log_prob_that_is_none_refuses_the_sample(sound: Sample, bad: float) -> None:
    logps = sound.segments[0].logps or ()
    assert reason(changed(sound, logps=(bad, *logps[1:]))) == "bad_logps"


def test_missing_or_short_log_probs_are_never_padded(sound: Sample) -> None:
    assert reason(changed(sound, logps=None)) == "bad_logps"
    assert reason(changed(sound, logps=(sound.segments[0].logps or ())[:-1])) == "bad_logps"


def test_one_bad_turn_refuses_the_whole_trajectory(sound: Sample, segments: tuple[Segment, ...]) -> None:
    two = sound.model_copy(update={"segments": (*sound.segments, segments[1].model_copy(update={"logps": None}))})
    assert reason(two) == "bad_logps"
    masked = segments[1].model_copy(update={"logps": None, "trainable": False})
    assert reason(sound.model_copy(update={"segments": (*sound.segments, masked)})) is None, "a masked turn needs none"


def test_nothing_to_train(sound: Sample) -> None:
    assert reason(changed(sound, trainable=False)) == "no_tokens"
    assert reason(changed(sound, completion_ids=(), logps=(), spans=())) == "no_tokens"
    assert reason(changed(sound, prompt_ids=())) == "no_prompt"


def test_what_the_model_cannot_read(sound: Sample) -> None:
    assert reason(changed(sound, prompt_ids=(1, 64))) == "bad_tokens"
    assert reason(changed(sound, prompt_ids=(1,) * 40)) == "too_long"
    assert reason(changed(sound, temperature=0.0)) == "greedy"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("tab-v0007", None),
        ("tab-v0005", None),
        ("tab-v0002", None),
        ("tab-v0001", "stale"),
        ("tab-v0006", "quarantined"),
        ("tab-v0003", "off_lineage"),
    ],
)
def test_lag_is_counted_along_the_lineage(sound: Sample, version: str, expected: str | None) -> None:
    """v3, v4 and v6 were thrown out, so v2 is only two checkpoints away."""
    length = len(sound.segments[0].completion_ids)
    assert reason(changed(sound, spans=(VersionSpan(version=version, start=0, end=length),))) == expected


def test_the_worst_version_of_a_mixed_answer_counts(sound: Sample) -> None:
    length = len(sound.segments[0].completion_ids)
    assert length >= 2
    spans = (VersionSpan(version="tab-v0007", start=0, end=1), VersionSpan(version="tab-v0001", start=1, end=length))
    assert reason(changed(sound, spans=spans)) == "stale"


@given(
    counts=st.dictionaries(st.integers(0, 30).map(str), st.integers(1, 40), max_size=12),
    share=st.floats(0.01, 1.0),
    most=st.integers(1, 200),
)
def test_no_subject_exceeds_its_share(counts: dict[str, int], share: float, most: int) -> None:
    size = admissible(counts, share, most)
    cap = size if share >= 1 else subject_cap(share, size)
    assert 0 <= size <= min(most, sum(counts.values()))
    assert sum(min(count, cap) for count in counts.values()) >= size
    for larger in range(size + 1, min(most, sum(counts.values())) + 1):
        assert sum(min(count, subject_cap(share, larger)) for count in counts.values()) < larger, "and it is the largest"


def test_a_busy_subject_waits_and_is_counted(world: World, segments: tuple[Segment, ...]) -> None:
    world.start()
    samples = [make_sample(n, segments[n % 48], subject="busy" if n < 30 else f"person-{n % 9}") for n in range(60)]
    world.put(samples)
    rules = Rules({"tab-v0000": 0}, frozenset(), 2, Readable(64, 64))
    with reading(world.engine) as session:
        found = select_samples(session, "tab", rules, 0.2, 40)
    of = Counter(sample.subject for sample in found.samples)
    assert of["busy"] <= 0.2 * len(found.samples) and len(found.samples) >= 30
    assert found.held["subject_share"] == 60 - len(found.samples)
    assert found.excluded == {}


def test_exclusions_reach_the_rows_with_reasons(world: World, segments: tuple[Segment, ...]) -> None:
    learner = world.start()
    good = [make_sample(n, segments[n % 48]) for n in range(10, 45)]
    nan = changed(make_sample(1, segments[1]), logps=(math.nan,) * len(segments[1].completion_ids))
    stranger = make_sample(2, segments[2], version="tab-v0099")
    world.put([nan, stranger, *good])
    learner.tick("tab")
    with reading(world.engine) as session:
        rows = {row.sample_id: row for row in session.exec(select(SampleRow)).all()}
    assert (rows["tab-e1"].state, rows["tab-e1"].reason) == ("excluded", "bad_logps")
    assert (rows["tab-e2"].state, rows["tab-e2"].reason) == ("excluded", "off_lineage")
    assert '"excluded":{"bad_logps":1,"off_lineage":1}' in world.cycles()[0].stats
    assert world.cycles()[0].samples == 32


def test_a_sample_revised_after_it_was_judged_is_not_claimed(fed: World, segments: tuple[Segment, ...]) -> None:
    samples = [make_sample(n, segments[n]) for n in range(3)]
    with writing(fed.engine) as session:
        row = session.get(SampleRow, "tab-e1")
        assert row is not None
        row.revision = 2
        session.add(row)
    with writing(fed.engine) as session:
        assert [sample.sample_id for sample in claim(session, "c", samples)] == ["tab-e0", "tab-e2"]
    with reading(fed.engine) as session:
        row = session.get(SampleRow, "tab-e1")
    assert row is not None and row.state == "ready"
