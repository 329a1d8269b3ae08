"""One member of a Kafka consumer group.

Enters: polls. Leaves: messages, each partition's in order. Goes wrong: as the broker (`Retry`).

The client tells about new partitions on its own network thread, where asking a database would hold up its heartbeats. So the
listener only stops them there; the next poll asks `on_assigned` in the caller's thread, seeks, and lets them run. A record may
hold more messages than were asked for: the rest waits here, and goes when its partition goes.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.errors import IllegalStateError, KafkaError

from contracts.errors import Retry
from infra.eventlog.broker_assignor import TogetherAssignor
from infra.eventlog.broker_client import open_client
from infra.eventlog.broker_errors import LOST_PLACE, explain, explained
from infra.eventlog.broker_records import messages_of, place_in, record_of, to_commit, without_read
from infra.eventlog.broker_rejoin import PatientPoll
from infra.eventlog.packing import PLACES
from infra.eventlog.port import Message, OnAssigned, Partition

SESSION_TIMEOUT_MS = 6_000
"""The shortest that a broker allows unless told otherwise; the client heartbeats on a thread of its own."""

HEARTBEAT_MS = SESSION_TIMEOUT_MS // 6

SLOWEST_BATCH_MS = 60_000
"""A rebalance waits so long for a member that is busy; one that is busy for longer loses its partitions."""

LEARN_S = 10.0

SLICE_MS = 100
"""A poll looks up from waiting so often: partitions that came meanwhile stand still until it does."""

ANSWER_MS = 5_000

RENEW_S = 2 * HEARTBEAT_MS / 1000
"""A member whose partitions went to another hears of it with a heartbeat; until then it must not ask for them again."""

REVOKED = (KeyError, ValueError, IllegalStateError)
"""What the client says of a partition that was revoked at this moment, on the network thread."""

log = logging.getLogger(__name__)


class BrokerConsumer:
    def __init__(
        self, bootstrap: str, settings: Mapping[str, object], group: str, topics: Sequence[str], on_assigned: OnAssigned | None
    ) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._on_assigned = on_assigned
        self._stopped: set[TopicPartition] = set()
        self._not_before: dict[TopicPartition, float] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._waiting: deque[tuple[TopicPartition, list[Message]]] = deque()
        self._uncommitted: dict[TopicPartition, int] = {}
        self._largest = 32
        self._looked = 0.0
        self._closed = False
        assignor = TogetherAssignor()
        self._consumer = open_client(
            KafkaConsumer,
            bootstrap,
            settings,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=SLOWEST_BATCH_MS,
            metrics_enabled=False,
            partition_assignment_strategy=(assignor,),
        )
        assignor.owned = self._consumer.assignment
        self._poll = PatientPoll(self._consumer)
        self._consumer.subscribe(topics, listener=_Stop(self._consumer, self._stopped))
        with explained(bootstrap):
            self._learn(topics)

    def poll(self, timeout_s: float, most: int = 500) -> list[Message]:
        deadline = time.monotonic() + timeout_s
        while True:
            left_ms = max(0, round((deadline - time.monotonic()) * 1000))
            with explained(self._bootstrap):
                if sum(len(found) for _, found in self._waiting) < most:
                    self._fetch(min(left_ms, SLICE_MS) if not self._waiting else 0, most)
                else:
                    self._look()
                now = time.monotonic()
                stopped = self._consumer.assignment() & frozenset(self._stopped)
                due = frozenset(place for place in stopped if self._not_before.get(place, 0.0) <= now)
                if due:
                    self._start(due)
            messages = self._take(most)
            if messages or left_ms == 0:
                return messages

    def assignment(self) -> frozenset[Partition]:
        return frozenset(Partition(*place) for place in self._held())

    def positions(self) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        with explained(self._bootstrap):
            for place in self._held():
                position = None
                with suppress(*REVOKED):
                    position = self._consumer.position(place, timeout_ms=ANSWER_MS)
                if position is not None:
                    found[Partition(*place)] = position * PLACES
        for at, messages in reversed(self._waiting):
            if Partition(*at) in found:
                found[Partition(*at)] = messages[0].offset
        return found

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """A partition that went to another member is left out: its new owner commits. While the group regroups the broker takes
        no commits; they are told again with a later poll."""
        self._uncommitted.update({TopicPartition(*place): offset for place, offset in offsets.items()})
        self._commit()

    def _commit(self) -> None:
        held = self._held()
        self._uncommitted = {place: offset for place, offset in self._uncommitted.items() if place in held}
        if not self._uncommitted:
            return
        try:
            self._consumer.commit({place: to_commit(offset) for place, offset in self._uncommitted.items()})
            self._uncommitted = {}
        except LOST_PLACE as error:
            log.debug("%s: the group moves on, %s not committed yet: %s", self._group, sorted(self._uncommitted), error)
        except KafkaError as error:
            raise explain(error, self._bootstrap) from error

    def renew(self, places: frozenset[Partition]) -> None:
        for place in {TopicPartition(*place) for place in places} & self._held():
            with suppress(*REVOKED):
                self._consumer.pause(place)
            self._stopped.add(place)
            self._not_before[place] = time.monotonic() + RENEW_S
        self._stopped &= self._consumer.assignment()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with explained(self._bootstrap):
            with suppress(Retry):
                self._commit()
            self._consumer.close(autocommit=False, timeout_ms=5_000)

    def _held(self) -> set[TopicPartition]:
        return set(self._consumer.assignment()) - self._stopped

    def _fetch(self, wait_ms: int, most: int) -> None:
        """As many records as hold about `most` messages, judging by the largest of late."""
        self._looked = time.monotonic()
        if self._uncommitted:
            self._commit()
        at_once = max(1, most // self._largest)
        found = self._poll(wait_ms, at_once, holds=bool(self._held()))
        stopped = frozenset(self._stopped)
        largest = 0
        for place, records in found.items():
            if place in stopped:
                continue
            for record in records:
                messages = messages_of(record)
                largest = max(largest, len(messages))
                if place in self._starts:
                    messages = without_read(messages, self._starts.pop(place))
                if messages:
                    self._waiting.append((place, messages))
        self._largest = max(largest, self._largest // 2, 1) if found else self._largest

    def _look(self) -> None:
        """Take part in the group without reading more."""
        if time.monotonic() - self._looked < SLICE_MS / 1000:
            return
        self._looked = time.monotonic()
        running = self._held()
        for place in running:
            with suppress(*REVOKED):
                self._consumer.pause(place)
        self._poll(0, 1, holds=False)
        for place in running & self._held():
            with suppress(*REVOKED):
                self._consumer.resume(place)

    def _take(self, most: int) -> list[Message]:
        held = self._held()
        taken: list[Message] = []
        while self._waiting and len(taken) < most:
            place, messages = self._waiting.popleft()
            if place not in held:
                continue
            room = most - len(taken)
            taken += messages[:room]
            if len(messages) > room:
                self._waiting.appendleft((place, messages[room:]))
        return taken

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
        self._waiting = deque(waiting for waiting in self._waiting if waiting[0] not in stopped)
        told = self._on_assigned(frozenset(Partition(*place) for place in stopped)) if self._on_assigned else {}
        for place in stopped & self._consumer.assignment():
            start = told.get(Partition(*place))
            if start is None:
                start = place_in(self._consumer.committed(place, metadata=True, timeout_ms=ANSWER_MS))
            self._starts[place] = start
            self._not_before.pop(place, None)
            self._uncommitted.pop(place, None)
            self._stopped.discard(place)  # before it runs: one that comes again meanwhile is stopped again
            with suppress(*REVOKED):
                self._consumer.seek(place, record_of(start))
                self._consumer.resume(place)


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
