"""Records: frozen, closed, exact after a round trip, and clear about what is wrong."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contracts.errors import IllegalMove, Poison, UnknownName
from contracts.ids import episode_of, sticky_fraction, subject_hash, turn_id
from contracts.outcome import Outcome
from contracts.rollout import Rollout
from contracts.states import CHECKPOINT_NEXT, CYCLE_NEXT, EPISODE_NEXT, OUTCOME_NEXT, SAMPLE_NEXT, CheckpointState, move
from contracts.turn import Turn, VersionSpan
from contracts.verdict import Verdict, worst

floats = st.floats(width=32, allow_nan=False)


@given(ids=st.lists(st.integers(0, 2**32 - 1), max_size=50), logps=st.lists(floats, max_size=50))
def test_token_arrays_survive_the_wire_bit_by_bit(turn_of_any, ids, logps):
    turn = turn_of_any(prompt_ids=ids, logps=logps)
    back = Turn.decode(turn.encode())
    assert back == turn and back.prompt_ids == tuple(ids) and back.logps == tuple(logps)


@pytest.fixture(scope="module")
def turn_of_any():
    from tests.conftest import make_turn

    return make_turn


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-14:00"])
def test_a_moment_that_is_none_in_utc_is_poison_and_no_crash(outcome_of, moment):
    told = json.loads(outcome_of("shown", "e1").encode()) | {"occurred_at": moment}
    with pytest.raises(Poison, match=r"occurred_at: .*between the years 1 and 9999"):
        Outcome.decode(json.dumps(told))


def test_packed_arrays_are_smaller_than_lists(turn_of):
    turn = turn_of(logps=[-0.123456789] * 100)
    as_list = json.dumps([-0.123456789] * 100)
    packed = json.loads(turn.encode())["logps"]
    assert len(packed) == 536 < len(as_list) / 2


def test_bad_log_probs_travel_and_are_seen(turn_of):
    turn = turn_of(logps=[math.nan, -math.inf, -1.0])
    back = Turn.decode(turn.encode())
    assert back.logps is not None and math.isnan(back.logps[0]) and back.logps[1] == -math.inf


@pytest.mark.parametrize("ids", [[-1], [2**32], ["a"], "not base64!", "AAA="])
def test_ids_that_are_none_are_refused(turn_of, ids):
    with pytest.raises(ValidationError, match="prompt_ids"):
        turn_of(prompt_ids=ids)


def test_a_gap_in_log_probs_is_refused_and_not_filled(turn_of):
    with pytest.raises(ValidationError, match="no gaps"):
        turn_of(logps=[-0.1, None, -0.2])


def test_spans_cover_the_answer_without_gaps(turn_of):
    spans = (VersionSpan(version="v1", start=0, end=2), VersionSpan(version="v2", start=2, end=3))
    assert turn_of(spans=spans).version is None
    with pytest.raises(ValidationError, match="spans cover 2 of 3"):
        turn_of(spans=spans[:1])
    with pytest.raises(ValidationError, match="without gaps"):
        turn_of(spans=(VersionSpan(version="v1", start=1, end=3),))


def test_records_are_frozen_and_closed(turn_of):
    turn = turn_of()
    with pytest.raises(ValidationError):
        turn.policy = "other"
    with pytest.raises(Poison, match="colour"):
        Turn.decode(json.dumps({**json.loads(turn.encode()), "colour": "red"}))


def test_a_naive_time_is_refused_and_another_offset_converted(turn_of):
    with pytest.raises(ValidationError, match="started_at"):
        turn_of(started_at=datetime(2026, 1, 1))
    shifted = turn_of(started_at="2026-03-08T01:30:00-05:00")
    assert shifted.started_at == datetime(2026, 3, 8, 6, 30, tzinfo=UTC) and shifted.started_at.tzinfo is UTC


def test_poison_names_the_field(turn_of):
    broken = {**json.loads(turn_of().encode()), "propensity": 0.0}
    with pytest.raises(Poison, match="propensity"):
        Turn.decode(json.dumps(broken))


@given(episode=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True), n=st.integers(0, 10**9))
def test_a_turn_id_leads_to_its_episode(episode, n):
    assert episode_of(turn_id(episode, f"3-{n}")) == episode


@given(subject=st.text(min_size=1), small=st.floats(0, 1), large=st.floats(0, 1))
def test_who_is_in_a_small_share_is_in_the_larger_one(subject, small, large):
    fraction = sticky_fraction("experiment", subject)
    assert 0.0 <= fraction < 1.0
    if fraction < min(small, large):
        assert fraction < max(small, large)


def test_shares_are_what_they_say():
    inside = sum(sticky_fraction("x", f"subject-{i}") < 0.1 for i in range(20_000))
    assert 1800 < inside < 2200


def test_a_subject_is_hashed_with_the_key():
    assert subject_hash(b"one", "ada") != subject_hash(b"two", "ada")
    assert "ada" not in subject_hash(b"one", "ada")


@pytest.mark.parametrize("table", [CHECKPOINT_NEXT, CYCLE_NEXT, EPISODE_NEXT, OUTCOME_NEXT, SAMPLE_NEXT])
def test_a_state_table_names_every_state_and_nothing_returns_from_a_final_one(table):
    states = set(type(next(iter(table))))
    assert set(table) == states
    for state in states:
        for other in states:
            if other in table[state]:
                assert move(table, state, other) is other
            else:
                with pytest.raises(IllegalMove, match=f"{state} cannot become {other}"):
                    move(table, state, other)


def test_only_the_canary_or_a_first_version_leads_to_traffic():
    into_live = {state for state, following in CHECKPOINT_NEXT.items() if CheckpointState.LIVE in following}
    assert into_live == {CheckpointState.BENCH, CheckpointState.CANARY}


def test_the_worst_verdict_wins_and_nothing_is_unsure():
    assert worst([]) is Verdict.UNSURE
    assert worst([Verdict.PASS, Verdict.PASS]) is Verdict.PASS
    assert worst([Verdict.PASS, Verdict.UNSURE]) is Verdict.UNSURE
    assert worst([Verdict.ERROR, Verdict.UNSURE]) is Verdict.ERROR
    assert worst([Verdict.FAIL, Verdict.ERROR, Verdict.PASS]) is Verdict.FAIL


def test_a_rollout_without_a_candidate_has_no_share():
    with pytest.raises(ValidationError, match="no candidate"):
        Rollout(policy="tab", revision=1, champion="v0", share=0.1, reason="r", at=datetime.now(UTC))


def test_an_unknown_plugin_is_answered_with_the_known_ones():
    from contracts.catalog import Catalog

    catalog: Catalog[type] = Catalog("bench suite", "harness.bench.suites")
    with pytest.raises(UnknownName, match="no bench suite is called 'nope'; there are"):
        catalog.get("nope")
