"""The event log on Apache Kafka, through kafka-python.

Enters: entries. Leaves: messages in order per key. Goes wrong: `Retry` when the broker is away (entries may then be in the
log all the same: at least once), `UnknownName` for a topic that nobody created, `Poison` for a record larger than the broker
takes, `StartError` when the broker refuses this process.

The client spends its time per record (about 4,000 a second): many small events travel better as few records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaProducer, OffsetSpec, TopicPartition
from kafka.errors import KafkaError, NoError, TopicAlreadyExistsError, for_code

from contracts.errors import UnknownName
from contracts.topics import Topic
from infra.eventlog.broker_client import open_client
from infra.eventlog.broker_consumer import BrokerConsumer
from infra.eventlog.broker_errors import TOO_LARGE, explain, explained
from infra.eventlog.port import Consumer, Entry, OnAssigned, Partition

Answer = TypeVar("Answer")

ANSWER_MS = 10_000
"""How long one question to the broker may take."""

DELIVERY_MS = 20_000
"""How long an append may take in all: longer than a broker's restart (4 s), short enough for a caller to hear of it."""

BATCH_BYTES = 128 * 1024


class BrokerLog:
    """Thread-safe; the producer and the administrator's client are made when first needed and shared."""

    def __init__(self, bootstrap: str, security: Mapping[str, str] | None = None) -> None:
        self._bootstrap = bootstrap
        self._settings: dict[str, object] = {
            "bootstrap_timeout_ms": ANSWER_MS,
            "request_timeout_ms": ANSWER_MS,
            "reconnect_backoff_max_ms": 1_000,
            **(security or {}),
        }
        self._lock = threading.Lock()
        self._producer: Any = None
        self._admin: Any = None
        self._partitions: dict[str, int] = {}

    def ensure(self, topics: Iterable[Topic]) -> None:
        """An existing topic is left as it is: its operator may have chosen other numbers."""
        wanted = {topic.name: topic for topic in topics}

        def create(admin: Any) -> None:
            missing = wanted.keys() - set(admin.list_topics())
            if missing:
                made = admin.create_topics({name: _new(wanted[name]) for name in sorted(missing)}, raise_errors=False)
                for answer in made["topics"]:
                    error = for_code(answer["error_code"])
                    if error not in (NoError, TopicAlreadyExistsError):
                        raise error(f"{answer['name']}: {answer['error_message']}")
            admin.wait_for_topics(sorted(wanted), timeout_ms=ANSWER_MS)

        self._ask(create)

    def append(self, topic: str, entries: Sequence[Entry]) -> None:
        self._count(topic)  # the client would wait a long time for a topic that does not exist
        producer = self._open_producer()
        try:
            sent = [producer.send(topic, value, None if key is None else key.encode()) for key, value in entries]
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

    def ends(self, topic: str) -> dict[Partition, int]:
        places = self._places(topic)
        found = self._ask(lambda admin: admin.list_partition_offsets({place: OffsetSpec.LATEST for place in places}))
        return {Partition(*place): found[place].offset for place in places}

    def committed(self, group: str, topic: str) -> dict[Partition, int]:
        places = self._places(topic)
        found = self._ask(lambda admin: admin.list_group_offsets({group: places}))[group]
        return {Partition(*place): max(0, found[place].offset) if place in found else 0 for place in places}

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
        return [TopicPartition(topic, number) for number in range(self._count(topic))]

    def _count(self, topic: str) -> int:
        """How many partitions a topic has; cached, since only an operator can change it, and only by growing it."""
        if topic not in self._partitions:
            described = self._ask(lambda admin: admin.describe_topics())
            for found in described:
                if found["error_code"] == 0 and not found["is_internal"]:
                    self._partitions[found["name"]] = len(found["partitions"])
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
                    compression_type="gzip",
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


def _new(topic: Topic) -> dict[str, object]:
    configs = {"retention.ms": str(topic.retention_s * 1000), "message.timestamp.type": "LogAppendTime"}
    return {"num_partitions": topic.partitions, "configs": configs}
