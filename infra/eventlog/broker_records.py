"""From the broker's records to messages, and from places in the log to the broker's offsets.

Enters: records of kafka-python. Leaves: messages; one of a marked record that cannot be unpacked carries a fault, so that it is
buried alone. `scan` reads without a group; what can go wrong there is that the broker is away (`Retry`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

from contracts.errors import Poison
from infra.eventlog import packing
from infra.eventlog.broker_client import open_client
from infra.eventlog.broker_errors import explained
from infra.eventlog.port import Message, Partition

SLICE_MS = 500
MOST_RECORDS = 50


def messages_of(record: Any) -> list[Message]:
    value = record.value or b""
    if not any(name == packing.HEADER for name, _ in record.headers or ()):
        # A key that is no text is another producer's; it stays readable.
        key = None if record.key is None else record.key.decode("utf-8", "backslashreplace")
        return [_message(record, packing.first_offset(record.offset, 1), key, value)]
    try:
        entries = packing.unpack(value)
    except Poison as poison:
        return [_message(record, packing.first_offset(record.offset, 1), None, value, poison)]
    first = packing.first_offset(record.offset, len(entries))
    return [_message(record, offset, key, value) for offset, (key, value) in enumerate(entries, first)]


def _message(record: Any, offset: int, key: str | None, value: bytes, fault: Poison | None = None) -> Message:
    return Message(record.topic, record.partition, offset, key, value, record.timestamp, fault)


def record_of(offset: int) -> int:
    """The broker's offset of the record that holds this place."""
    return offset // packing.PLACES


def without_read(found: list[Message], start: int) -> list[Message]:
    """What lies before `start` in the record where reading began was read before. Other records are taken whole: where a log
    begins anew, their offsets may be smaller."""
    return [message for message in found if message.offset >= start or record_of(message.offset) != record_of(start)]


def to_commit(offset: int) -> OffsetAndMetadata:
    """The broker keeps the record's offset, so that its tools show the right lag; the place within it goes into the note."""
    return OffsetAndMetadata(record_of(offset), str(offset % packing.PLACES), -1)


def place_in(committed: OffsetAndMetadata | None) -> int:
    """0 where nothing was committed; a note by somebody else is not taken for a place."""
    if committed is None or committed.offset < 0:
        return 0
    note = committed.metadata or ""
    within = int(note) if note.isascii() and note.isdecimal() and len(note) <= 4 else 0
    return int(committed.offset) * packing.PLACES + (within if within < packing.PLACES else 0)


def scan(
    bootstrap: str, settings: Mapping[str, object], ends: Mapping[Partition, int], starts: Mapping[Partition, int]
) -> Iterator[Message]:
    """One partition after the other, until what was its end when this was called."""
    consumer = open_client(
        KafkaConsumer, bootstrap, settings, enable_auto_commit=False, auto_offset_reset="earliest", metrics_enabled=False
    )
    with closing(consumer), explained(bootstrap):
        for place, end in sorted(ends.items()):
            at, start = TopicPartition(*place), starts.get(place, 0)
            if start >= end:
                continue
            consumer.assign([at])
            consumer.seek(at, record_of(start))
            while consumer.position(at) < record_of(end):
                for records in consumer.poll(SLICE_MS, max_records=MOST_RECORDS).values():
                    for record in records:
                        if record.offset < record_of(end):
                            yield from without_read(messages_of(record), start)
