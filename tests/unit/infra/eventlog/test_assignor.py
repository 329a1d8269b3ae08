"""Shares of a group: whole, even, together, and moved in two rounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition

from infra.eventlog.broker_assignor import now, share

MEMBERS = st.frozensets(st.sampled_from("abcdef"), min_size=1)
SHAPES = st.dictionaries(st.sampled_from(["turns", "outcomes", "refusals"]), st.integers(1, 7), min_size=1)


def settle(topics, partitions, owners):
    """Rounds as the broker would run them, until nothing moves: a member that lost something joins again."""
    for rounds in range(1, 4):
        held = now(share(topics, partitions, owners), owners)
        given_out = [place for places in held.values() for place in places]
        assert len(given_out) == len(set(given_out))
        for member, places in held.items():
            taken_from_others = {place for place in places if owners.get(place, member) != member}
            assert not taken_from_others, "a partition was given away while its owner still read it"
        after = {place: member for member, places in held.items() for place in places}
        lost = any(after.get(place) != owner for place, owner in owners.items() if owner in topics)
        owners = after
        if not lost:
            return held, rounds
    raise AssertionError("it never settled")


@given(shapes=SHAPES, generations=st.lists(MEMBERS, min_size=1, max_size=6))
def test_any_coming_and_going_ends_whole_even_and_together(shapes, generations):
    partitions = {topic: set(range(count)) for topic, count in shapes.items()}
    owners: dict[TopicPartition, str] = {}
    for members in generations:
        topics = {member: set(shapes) for member in members}
        owners = {place: owner for place, owner in owners.items() if owner in members}
        held, _ = settle(topics, partitions, owners)
        assert {place for places in held.values() for place in places} == {
            TopicPartition(topic, number) for topic, count in shapes.items() for number in range(count)
        }
        numbers = {member: {place.partition for place in places} for member, places in held.items()}
        assert sum(len(found) for found in numbers.values()) == max(shapes.values())
        assert max(map(len, numbers.values())) - min(map(len, numbers.values())) <= 1
        owners = {place: member for member, places in held.items() for place in places}


@given(shapes=SHAPES, before=MEMBERS, after=MEMBERS)
def test_nothing_moves_that_need_not(shapes, before, after):
    partitions = {topic: set(range(count)) for topic, count in shapes.items()}
    held, _ = settle({member: set(shapes) for member in before}, partitions, {})
    owners = {place: member for member, places in held.items() for place in places if member in after}
    held_after, _ = settle({member: set(shapes) for member in after}, partitions, owners)
    units = max(shapes.values())
    for member in before & after:
        kept = {place.partition for place in held[member]} & {place.partition for place in held_after[member]}
        assert len(kept) >= min(len({place.partition for place in held[member]}), units // len(after))


def test_members_with_other_topics_share_what_they_read():
    topics = {"a": {"turns", "outcomes"}, "b": {"turns", "outcomes"}, "c": {"rollouts"}}
    partitions = {"turns": range(4), "outcomes": range(4), "rollouts": range(2)}
    held, _ = settle(topics, partitions, {})
    assert {place.topic for place in held["c"]} == {"rollouts"} and len(held["c"]) == 2
    assert len(held["a"]) == len(held["b"]) == 4


def test_a_claim_of_two_ends_with_one_of_them():
    topics, partitions = {"a": {"t"}, "b": {"t"}}, {"t": range(2)}
    owners = {TopicPartition("t", 0): "a", TopicPartition("t", 1): "a"}
    held = now(share(topics, partitions, owners), owners)
    assert held == {"a": {TopicPartition("t", 0)}, "b": set()}
