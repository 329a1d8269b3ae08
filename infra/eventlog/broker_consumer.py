"""One member of a Kafka consumer group.

Enters: polls. Leaves: messages, each partition's in order. Goes wrong: as the broker (`Retry`).

The client tells about new partitions on its own network thread, where asking a database would hold up its heartbeats. So the
listener only stops them there; the next poll asks `on_assigned` in the caller's thread, seeks, and lets them run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from contracts.errors import Retry
from infra.eventlog.broker_client import open_client
from infra.eventlog.broker_errors import LOST_PLACE, explain, explained
from infra.eventlog.port import Message, OnAssigned, Partition

SESSION_TIMEOUT_MS = 6_000
"""The shortest that a broker allows unless told otherwise; the client heartbeats on a thread of its own."""

SLOWEST_BATCH_MS = 60_000
"""A rebalance waits so long for a member that is busy; one that is busy for longer loses its partitions."""

LEARN_S = 10.0

ANSWER_MS = 5_000

SLICE_MS = 100
"""A poll looks up from waiting so often: partitions that came meanwhile stand still until it does."""

log = logging.getLogger(__name__)


class BrokerConsumer:
    def __init__(
        self, bootstrap: str, settings: Mapping[str, object], group: str, topics: Sequence[str], on_assigned: OnAssigned | None
    ) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._on_assigned = on_assigned
        self._stopped: set[TopicPartition] = set()
        self._closed = False
        self._consumer = open_client(
            KafkaConsumer,
            bootstrap,
            settings,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=SESSION_TIMEOUT_MS // 6,
            max_poll_interval_ms=SLOWEST_BATCH_MS,
            metrics_enabled=False,
        )
        self._consumer.subscribe(topics, listener=_Stop(self._consumer, self._stopped))
        with explained(bootstrap):
            self._learn(topics)

    def poll(self, timeout_s: float, most: int = 500) -> list[Message]:
        deadline = time.monotonic() + timeout_s
        while True:
            left_ms = max(0, round((deadline - time.monotonic()) * 1000))
            with explained(self._bootstrap):
                found = self._consumer.poll(min(left_ms, SLICE_MS), max_records=most)
                stopped = frozenset(self._stopped)
                if stopped:
                    self._start(stopped)
            messages = [_message(record) for place, records in found.items() if place not in stopped for record in records]
            if messages or left_ms == 0:
                return messages

    def assignment(self) -> frozenset[Partition]:
        return frozenset(Partition(*place) for place in self._consumer.assignment() - self._stopped)

    def positions(self) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        with explained(self._bootstrap):
            for place in self._consumer.assignment() - self._stopped:
                position = self._consumer.position(place, timeout_ms=ANSWER_MS)
                if position is not None:
                    found[Partition(*place)] = position
        return found

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """A partition that went to another member is left out: its new owner commits."""
        mine = self.assignment()
        places = {TopicPartition(*place): OffsetAndMetadata(offsets[place]) for place in offsets if place in mine}
        if not places:
            return
        try:
            self._consumer.commit(places)
        except LOST_PLACE as error:
            log.info("%s: the group moved on before a commit of %s: %s", self._group, sorted(places), error)
        except KafkaError as error:
            raise explain(error, self._bootstrap) from error

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with explained(self._bootstrap):
            self._consumer.close(autocommit=False, timeout_ms=5_000)

    def _learn(self, topics: Sequence[str]) -> None:
        """Know the partitions before joining. The client (3.0.12) may take its first metadata request, sent before it knew the
        topics, for the answer: as the group's leader it would then share out no partitions, and for minutes not notice."""
        deadline = time.monotonic() + LEARN_S
        while not all(self._consumer.partitions_for_topic(topic) for topic in topics):
            if time.monotonic() > deadline:
                self.close()
                raise Retry(f"Kafka at {self._bootstrap} does not tell the partitions of {', '.join(topics)} yet.")
            time.sleep(0.05)

    def _start(self, stopped: frozenset[TopicPartition]) -> None:
        """An error of `on_assigned` leaves them stopped: the next poll asks again."""
        told = self._on_assigned(frozenset(Partition(*place) for place in stopped)) if self._on_assigned else {}
        for place in stopped & self._consumer.assignment():
            if Partition(*place) in told:
                self._consumer.seek(place, told[Partition(*place)])
            self._consumer.resume(place)
        self._stopped -= stopped


class _Stop(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: KafkaConsumer, stopped: set[TopicPartition]) -> None:
        self._consumer = consumer
        self._stopped = stopped

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        places = set(assigned)
        self._consumer.pause(*places)
        self._stopped |= places

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._stopped -= set(revoked)


def _message(record: Any) -> Message:
    key = None if record.key is None else record.key.decode()
    return Message(record.topic, record.partition, record.offset, key, record.value or b"", record.timestamp)
