"""Many entries in one Kafka record: the client spends its time per record, whatever is in it.

Enters: entries of one partition. Leaves: the value of a record, marked by a header, and back. A record without the header is one
entry, so that other producers are read and other consumers can read what was appended alone. What can go wrong: `Poison` for a
marked record that is not what it says.

Offsets: entry i of n in the record at Kafka's offset k lies at 4096 k + 4096 - n + i. They grow within a partition and are never
used twice, and one past the last entry of a record is where the next record begins, so that `offset + 1` resumes.

Layout, big-endian: n (uint16), n pairs of lengths (int32: key or -1 for none, value), then keys and values one after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from contracts.errors import Poison
from infra.eventlog.port import Entry

HEADER = "slipstream-pack"
VERSION = b"1"

PLACES = 4096
"""Offsets that each record takes up."""

MOST_ENTRIES = 500
MOST_BYTES = 64 * 1024


def bundles(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """In order, as few as their number and size allow; an entry that is large goes alone."""
    start = size = 0
    for at, (key, value) in enumerate(entries):
        more = len(value) + (len(key) if key else 0)
        if at > start and (at - start >= MOST_ENTRIES or size + more > MOST_BYTES):
            yield entries[start:at]
            start, size = at, 0
        size += more
    if entries:
        yield entries[start:]


def pack(entries: Sequence[Entry]) -> bytes:
    lengths: list[int] = []
    parts: list[bytes] = [b""]
    for key, value in entries:
        encoded = b"" if key is None else key.encode()
        lengths += (-1 if key is None else len(encoded), len(value))
        parts += (encoded, value)
    parts[0] = struct.pack(f">H{len(lengths)}i", len(entries), *lengths)
    return b"".join(parts)


def unpack(value: bytes) -> list[Entry]:
    try:
        (count,) = struct.unpack_from(">H", value)
        lengths = struct.unpack_from(f">{2 * count}i", value, 2)
        at = 2 + 8 * count
        entries = []
        for key_length, value_length in zip(lengths[::2], lengths[1::2], strict=True):
            if value_length < 0 or key_length < -1:
                raise ValueError("a length is negative")
            between = at + max(0, key_length)
            entries.append(Entry(None if key_length < 0 else value[at:between].decode(), value[between : between + value_length]))
            at = between + value_length
        if at != len(value) or not 0 < count <= PLACES:
            raise ValueError(f"{count} entries should take {at} bytes, there are {len(value)}")
    except (struct.error, ValueError) as error:
        raise Poison("broken_pack", f"marked as packed, but it is not: {error}") from error
    return entries


def first_offset(record: int, count: int) -> int:
    return (record + 1) * PLACES - count
