"""Rewards by hand: each figure here can be checked with a pencil."""

from __future__ import annotations

import pytest

from contracts.episode import Episode
from contracts.errors import StartError, UnknownName
from contracts.policy import RewardPart, RewardSpec
from rewarding.blend import Blend
from rewarding.credit import assign


@pytest.fixture
def judge(tab_policy, turn_of, outcome_of):
    blend = Blend(tab_policy.reward)

    def judge(*told, turns=None):
        turns = turns or (turn_of(),)
        outcomes = tuple(outcome_of(kind, f"e{i}", at_s=i, **more) for i, (kind, more) in enumerate(told))
        episode = Episode(
            episode_id="ep-1",
            policy="tab",
            revision=1,
            subject="subject-1",
            turns=turns,
            outcomes=outcomes,
            closed_by="closed",
            closed_at=turns[0].started_at,
        )
        return episode, blend.judge(episode)

    return judge


@pytest.mark.parametrize(
    ("told", "reward"),
    [
        ([("shown", {}), ("accepted", {})], 0.75),
        ([("shown", {}), ("rejected", {})], -0.25),
        ([("accepted", {}), ("rejected", {})], -0.25),
        ([("rejected", {}), ("accepted", {})], 0.75),
        ([("accepted", {}), ("persisted", {})], 0.75),
        ([("accepted", {}), ("edited", {"happening": {"surviving": 0.5}})], 0.75 - 0.25 * 0.5),
        ([("accepted", {}), ("reverted", {})], 0.75 - 0.25),
        ([("accepted", {}), ("edited", {}), ("persisted", {})], 0.75),
        ([("rejected", {}), ("reverted", {})], -0.25),
        ([("shown", {})], None),
        ([], None),
    ],
)
def test_what_people_did_has_its_worth(judge, told, reward):
    _, judged = judge(*told)
    assert judged.reward.value == (None if reward is None else pytest.approx(reward))


def test_silence_has_a_price_and_a_missing_answer_has_none(judge, turn_of):
    _, silent = judge(turns=(turn_of(finish="silence", text="", completion_ids=(9,)),))
    assert silent.reward.value == 0.0
    _, failed = judge(turns=(turn_of(finish="error", text="", completion_ids=()),))
    assert failed.reward.value is None
    _, blank = judge(turns=(turn_of(finish="empty", text="  "),))
    assert blank.reward.value == -0.25


def test_what_is_measured_is_not_paid(judge):
    _, judged = judge(("shown", {}), ("accepted", {}))
    parts = {part.name: part for part in judged.reward.parts}
    assert parts["accepted"].value == 1.0 and parts["accepted"].weight == 0.0
    assert parts["accepted_characters"].value == 3.0 and parts["shown"].value == 1.0
    assert parts["acceptance"].evidence == ("e1",)


def test_the_same_revision_gives_the_same_bits(judge):
    first, second = (judge(("accepted", {}), ("edited", {}))[1].reward for _ in range(2))
    assert first.encode() == second.encode()


def test_credit_goes_to_the_turn_that_earned_it(judge, turn_of):
    turns = (turn_of(n="1-0"), turn_of(n="1-1", at_s=1, role="main"), turn_of(n="1-2", at_s=2, role="helper-frozen"))
    episode, judged = judge(("accepted", {"n": "1-1"}), ("rejected", {"n": "1-2"}), turns=turns)
    sample = assign(episode, judged)
    assert sample is not None and sample.reward == pytest.approx(0.5)
    assert [(s.trainable, s.credit) for s in sample.segments] == [(False, 0.0), (True, 0.75), (False, -0.25)]


def test_nobody_who_did_not_agree_is_trained_on(judge, turn_of):
    episode, judged = judge(("accepted", {}), turns=(turn_of(consent=False),))
    assert judged.reward.value == 0.75 and assign(episode, judged) is None


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 40}])
def test_what_was_sampled_from_a_truncated_distribution_is_not_trained_on(judge, turn_of, cut):
    episode, judged = judge(("accepted", {}), turns=(turn_of(sampling={"temperature": 0.4, **cut}),))
    sample = assign(episode, judged)
    assert sample is not None and not sample.segments[0].trainable


def test_an_unknown_extractor_is_answered_with_the_known_ones():
    spec = RewardSpec(name="x", version=1, parts=(RewardPart(extractor="happiness", weight=1.0),))
    with pytest.raises(UnknownName, match="acceptance, accepted, accepted_characters, persistence, shown"):
        Blend(spec)


def test_a_wrong_option_names_spec_extractor_and_field():
    spec = RewardSpec(name="x", version=1, parts=(RewardPart(extractor="acceptance", weight=1.0, options={"acepted": 1}),))
    with pytest.raises(StartError, match="reward spec x@1: extractor acceptance: acepted"):
        Blend(spec)
