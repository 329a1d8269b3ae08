"""The event log on Apache Kafka, through kafka-python.

Enters: entries. Leaves: messages in order per key. Goes wrong: `Retry` when the broker is away (entries may then be in the
log all the same: at least once), `UnknownName` for a topic that nobody created, `Poison` for a record larger than the broker
takes, `StartError` when the broker refuses this process.

What one call appends to one partition travels in few records (see `packing`). A key's partition is the one that every Kafka
client's default gives it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaProducer, OffsetSpec, TopicPartition
from kafka.errors import KafkaError
from kafka.partitioner import murmur2

from contracts.errors import UnknownName
from contracts.topics import Topic
from infra.eventlog import broker_topics, packing
from infra.eventlog.access import KafkaAccess
from infra.eventlog.broker_client import open_client
from infra.eventlog.broker_consumer import BrokerConsumer
from infra.eventlog.broker_errors import TOO_LARGE, explain, explained
from infra.eventlog.broker_records import place_in, scan
from infra.eventlog.port import Consumer, Entry, Message, OnAssigned, Partition

Answer = TypeVar("Answer")

ANSWER_MS = 10_000
"""How long one question to the broker may take."""

DELIVERY_MS = 20_000
"""How long an append may take in all: longer than a broker's restart (4 s), short enough for a caller to hear of it."""

BATCH_BYTES = 128 * 1024

COUNT_S = 60.0
"""An operator who adds partitions is noticed so late; the client's own consumers take minutes."""


class BrokerLog:
    """Thread-safe; the producer and the administrator's client are made when first needed and shared."""

    def __init__(self, bootstrap: str, access: KafkaAccess) -> None:
        self._bootstrap = bootstrap
        self._compression = access.codec
        self._settings: dict[str, object] = {
            "bootstrap_timeout_ms": ANSWER_MS,
            "request_timeout_ms": ANSWER_MS,
            "reconnect_backoff_max_ms": 1_000,
            **access.client_settings(),
        }
        self._lock = threading.Lock()
        self._producer: Any = None
        self._admin: Any = None
        self._partitions: dict[str, int] = {}
        self._counted = 0.0
        self._checked: set[str] = set()

    def ensure(self, topics: Iterable[Topic]) -> None:
        """An existing topic is left as it is: its operator may have chosen other numbers. What differs is logged, once."""
        wanted = {topic.name: topic for topic in topics}
        there = self._ask(lambda admin: broker_topics.create(admin, wanted, ANSWER_MS))
        unchecked = [wanted[name] for name in sorted(there - self._checked)]
        if unchecked:
            self._checked |= there
            self._ask(lambda admin: broker_topics.report_differences(admin, unchecked))

    def append(self, topic: str, entries: Sequence[Entry]) -> None:
        self._count(topic)  # the client would wait a long time for a topic that does not exist
        producer = self._open_producer()
        try:
            partitions = len(producer.partitions_for(topic))
            sent = []
            for number, placed in _placed(entries, partitions).items():
                for bundle in packing.bundles(placed):
                    sent.append(_send(producer, topic, number, bundle))
            for future in sent:
                future.get(DELIVERY_MS / 1000 + 1)
        except KafkaError as error:
            if not error.retriable and not isinstance(error, TOO_LARGE):
                self._drop(producer)
            raise explain(error, self._bootstrap) from error

    def consumer(self, group: str, topics: Sequence[str], on_assigned: OnAssigned | None = None) -> Consumer:
        for topic in topics:
            self._count(topic)
        return BrokerConsumer(self._bootstrap, self._settings, group, topics, on_assigned)

    def scan(self, topic: str, starts: Mapping[Partition, int] | None = None) -> Iterator[Message]:
        return scan(self._bootstrap, self._settings, self.ends(topic), starts or {})

    def ends(self, topic: str) -> dict[Partition, int]:
        return {place: record * packing.PLACES for place, record in self._ends(topic).items()}

    def committed(self, group: str, topic: str) -> dict[Partition, int]:
        places = self._places(topic)
        found = self._ask(lambda admin: admin.list_group_offsets({group: places}))[group]
        return {Partition(*place): place_in(found[place]) if place in found else 0 for place in places}

    def behind(self, group: str, topic: str) -> int:
        committed = self.committed(group, topic)
        return sum(max(0, end - committed[place] // packing.PLACES) for place, end in self._ends(topic).items())

    def trim(self) -> int:
        """A broker keeps its retention by itself."""
        return 0

    def close(self) -> None:
        with self._lock:
            producer, admin = self._producer, self._admin
            self._producer = self._admin = None
        with explained(self._bootstrap):
            if producer is not None:
                producer.close(timeout=ANSWER_MS / 1000)
            if admin is not None:
                admin.close()

    def _places(self, topic: str) -> list[TopicPartition]:
        if time.monotonic() - self._counted > COUNT_S:
            self._partitions = {}
        return [TopicPartition(topic, number) for number in range(self._count(topic))]

    def _ends(self, topic: str) -> dict[Partition, int]:
        """In the broker's own offsets, one a record."""
        places = self._places(topic)
        found = self._ask(lambda admin: admin.list_partition_offsets({place: OffsetSpec.LATEST for place in places}))
        return {Partition(*place): found[place].offset for place in places}

    def _count(self, topic: str) -> int:
        """How many partitions a topic has; cached, since only an operator can change it, and only by growing it."""
        if topic not in self._partitions:
            self._partitions = self._ask(broker_topics.partition_counts)
            self._counted = time.monotonic()
        try:
            return self._partitions[topic]
        except KeyError:
            known = ", ".join(sorted(self._partitions)) or "none yet"
            raise UnknownName(f"no topic is called {topic!r}; there are: {known}") from None

    def _ask(self, question: Callable[[Any], Answer]) -> Answer:
        """Asks again for a while: a young broker has no coordinators yet. After an error the client goes, since it
        remembers coordinators and controllers that may be the reason."""
        deadline = time.monotonic() + ANSWER_MS / 1000
        while True:
            with self._lock, explained(self._bootstrap):
                if self._admin is None:
                    self._admin = open_client(KafkaAdminClient, self._bootstrap, self._settings)
                try:
                    return question(self._admin)
                except KafkaError as error:
                    broken, self._admin = self._admin, None
                    broken.close()
                    if not error.retriable or time.monotonic() > deadline:
                        raise
            time.sleep(0.2)

    def _open_producer(self) -> Any:
        with self._lock:
            if self._producer is None:
                self._producer = open_client(
                    KafkaProducer,
                    self._bootstrap,
                    self._settings,
                    acks="all",
                    enable_idempotence=True,
                    compression_type=self._compression,
                    batch_size=BATCH_BYTES,
                    delivery_timeout_ms=DELIVERY_MS,
                    max_block_ms=ANSWER_MS,
                    allow_auto_create_topics=False,
                    metrics_enabled=False,
                )
            return self._producer

    def _drop(self, producer: Any) -> None:
        """A producer that failed for good has lost its place in the broker's numbering; the next append starts a fresh one."""
        with self._lock:
            if self._producer is not producer:
                return
            self._producer = None
        with suppress(KafkaError):
            producer.close(timeout=1)


@lru_cache(maxsize=65_536)
def _hash(key: str) -> int:
    return int(murmur2(key.encode())) & 0x7FFFFFFF


def partition_of(key: str, partitions: int) -> int:
    """As kafka-python's and Java's default partitioner, so that other producers' records of a key lie beside ours."""
    return _hash(key) % partitions


def _placed(entries: Sequence[Entry], partitions: int) -> dict[int, list[Entry]]:
    anywhere = random.randrange(partitions)
    placed: dict[int, list[Entry]] = {}
    for entry in entries:
        number = anywhere if entry.key is None else partition_of(entry.key, partitions)
        placed.setdefault(number, []).append(entry)
    return placed


def _send(producer: Any, topic: str, number: int, bundle: Sequence[Entry]) -> Any:
    if len(bundle) == 1:
        ((key, value),) = bundle
        return producer.send(topic, value, None if key is None else key.encode(), partition=number)
    return producer.send(topic, packing.pack(bundle), headers=[(packing.HEADER, packing.VERSION)], partition=number)
