"""Who of a Kafka consumer group reads which partitions: cooperative, and the same numbers of all topics together.

Enters: the group's members, their topics and what each holds. Leaves: shares. Members keep what they hold while a rebalance goes
on (KIP-429): a partition that should move is first only taken from its owner, and given to the new one in the round after. The
client's own cooperative assignor spreads partitions without regard to their numbers; here partition n of every topic with the
same readers is one unit, so that records of one key meet in one member, and change hands at the same moment.

What can go wrong: two members claim one partition (one was away and does not know). One of them is believed; the other is told to
let go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafka import TopicPartition
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

Unit = frozenset[TopicPartition]
Owners = Mapping[TopicPartition, str]


class TogetherAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """`owned` tells what this member holds now; its consumer sets it."""

    name = "slipstream-together"
    version = 1  # of the wire format: the first that carries what a member owns

    def __init__(self) -> None:
        self.owned: Callable[[], Iterable[TopicPartition]] = tuple

    def supported_protocols(self) -> list[RebalanceProtocol]:
        return [RebalanceProtocol.COOPERATIVE]

    def metadata(self, topics: Iterable[str]) -> Any:
        owned: dict[str, list[int]] = defaultdict(list)
        for topic, number in sorted(self.owned()):
            owned[topic].append(number)
        return ConsumerProtocolSubscription(
            version=self.version,
            topics=sorted(topics),
            user_data=b"",
            owned_partitions=[
                ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in owned.items()
            ],
        )

    def on_assignment(self, assignment: Any, generation: int) -> None:
        pass

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        topics = {member.member_id: set(member.metadata.topics) for member in members}
        owners: dict[TopicPartition, str] = {}
        for member in sorted(members, key=lambda member: str(member.member_id)):
            for owned in member.metadata.owned_partitions or ():
                for number in owned.partitions:
                    owners.setdefault(TopicPartition(owned.topic, number), member.member_id)
        partitions = {topic: cluster.partitions_for_topic(topic) or set() for topic in set().union(*topics.values())}
        shares = now(share(topics, partitions, owners), owners)
        return {member: self._encoded(shares.get(member, set())) for member in topics}

    def _encoded(self, places: Iterable[TopicPartition]) -> Any:
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, number in sorted(places):
            by_topic[topic].append(number)
        return ConsumerProtocolAssignment(self.version, sorted(by_topic.items()), b"")


def share(topics: Mapping[str, set[str]], partitions: Mapping[str, Iterable[int]], owners: Owners) -> dict[str, list[Unit]]:
    """Whose each unit should be in the end: even numbers of them, and as few moves as that allows."""
    shares: dict[str, list[Unit]] = {member: [] for member in topics}
    for readers, units in _units(topics, partitions):
        held: dict[str, list[Unit]] = {reader: [] for reader in readers}
        free: list[Unit] = []
        for unit in units:
            owner = _owner(unit, owners)
            held.get(owner, free).append(unit)
        order = sorted(readers, key=lambda reader: (-len(held[reader]), reader))
        least, more = divmod(len(units), len(order))
        room = {reader: least + (at < more) for at, reader in enumerate(order)}
        for reader in order:
            free += held[reader][room[reader] :]
            del held[reader][room[reader] :]
        for reader in order:
            while free and len(held[reader]) < room[reader]:
                held[reader].append(free.pop(0))
            shares[reader] += held[reader]
    return shares


def now(shares: Mapping[str, Sequence[Unit]], owners: Owners) -> dict[str, set[TopicPartition]]:
    """What may be handed out in this round: a unit that another member still holds a part of stays where it is, or with nobody."""
    return {
        member: {
            place
            for unit in units
            for place in unit
            if owners.get(place) == member or all(owners.get(part, member) == member for part in unit)
        }
        for member, units in shares.items()
    }


def _units(topics: Mapping[str, set[str]], partitions: Mapping[str, Iterable[int]]) -> Iterable[tuple[tuple[str, ...], list[Unit]]]:
    """Topics with the same readers, and of each such family the units in the order of their numbers."""
    families: dict[tuple[str, ...], dict[int, set[TopicPartition]]] = defaultdict(lambda: defaultdict(set))
    for topic, numbers in partitions.items():
        readers = tuple(sorted(member for member, read in topics.items() if topic in read))
        for number in numbers:
            families[readers][number].add(TopicPartition(topic, number))
    for readers, family in sorted(families.items()):
        yield readers, [frozenset(family[number]) for number in sorted(family)]


def _owner(unit: Unit, owners: Owners) -> str:
    """Who holds most of it; empty when nobody holds any."""
    held: dict[str, int] = defaultdict(int)
    for place in unit:
        if place in owners:
            held[owners[place]] += 1
    return max(sorted(held), key=lambda owner: held[owner], default="")
