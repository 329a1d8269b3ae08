"""Packed records: what goes in comes out, at places that grow and resume."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.structs import OffsetAndMetadata

from contracts.errors import Poison
from infra.eventlog import packing
from infra.eventlog.broker import partition_of
from infra.eventlog.broker_records import messages_of, place_in, record_of, to_commit, without_read
from infra.eventlog.packing import HEADER, MOST_BYTES, MOST_ENTRIES, PLACES, VERSION, bundles, pack, unpack
from infra.eventlog.port import Entry

ENTRIES = st.lists(st.builds(Entry, st.none() | st.text(max_size=20), st.binary(max_size=60)), min_size=1, max_size=40)


def record(offset: int, value: bytes | None, key: bytes | None = None, packed: bool = True) -> SimpleNamespace:
    headers = [(HEADER, VERSION)] if packed else []
    return SimpleNamespace(topic="t", partition=0, offset=offset, key=key, value=value, headers=headers, timestamp=5)


@given(ENTRIES)
def test_what_goes_in_comes_out(entries):
    assert unpack(pack(entries)) == entries


@given(ENTRIES, st.integers(0, 500), st.integers(0, 255))
def test_a_damaged_record_is_poison_or_other_entries_and_never_anything_else(entries, at, byte):
    damaged = bytearray(pack(entries))
    damaged[at % len(damaged)] = byte
    for value in (bytes(damaged), bytes(damaged[:at]), bytes(damaged) + b"x"):
        try:
            unpack(value)
        except Poison as poison:
            assert poison.reason == "broken_pack"


@given(st.lists(st.integers(0, 100_000), max_size=30))
def test_bundles_keep_the_order_and_the_limits(sizes):
    entries = [Entry(str(n), bytes(size)) for n, size in enumerate(sizes)]
    found = list(bundles(entries))
    assert [entry for bundle in found for entry in bundle] == entries
    assert all(bundle for bundle in found)
    assert all(len(bundle) == 1 or sum(len(e.value) + len(e.key) for e in bundle) <= MOST_BYTES for bundle in found)


def test_many_small_entries_are_few_records():
    entries = [Entry("k", b"x")] * 1_201
    assert [len(bundle) for bundle in bundles(entries)] == [MOST_ENTRIES, MOST_ENTRIES, 201]
    assert MOST_ENTRIES <= PLACES


@given(st.lists(st.integers(1, MOST_ENTRIES), min_size=1, max_size=6), st.integers(0, 10**9))
def test_offsets_grow_and_the_next_one_is_where_the_next_record_begins(counts, first):
    offsets: list[int] = []
    for number, count in enumerate(counts, first):
        found = messages_of(record(number, pack([Entry("k", b"")] * count)))
        offsets += [message.offset for message in found]
        assert {record_of(message.offset) for message in found} == {number}
        assert found[-1].offset + 1 == (number + 1) * PLACES
    assert offsets == sorted(set(offsets))


def test_a_record_of_another_producer_is_one_message():
    (plain,) = messages_of(record(7, b"value", b"\xffkey", packed=False))
    assert (plain.offset, plain.key, plain.value, plain.fault) == (8 * PLACES - 1, "\\xffkey", b"value", None)
    (tombstone,) = messages_of(record(8, None, b"key", packed=False))
    assert tombstone.value == b""


def test_a_marked_record_that_is_broken_is_one_message_at_fault():
    (found,) = messages_of(record(3, b"\x00\x02nonsense"))
    assert found.fault is not None and found.fault.reason == "broken_pack"
    assert (found.offset, found.value) == (4 * PLACES - 1, b"\x00\x02nonsense")


def test_reading_goes_on_in_the_middle_of_a_record():
    found = messages_of(record(2, pack([Entry("k", bytes([n])) for n in range(5)])))
    assert [m.value for m in without_read(found, found[3].offset)] == [b"\x03", b"\x04"]
    assert without_read(found, 99 * PLACES) == found  # the log began anew: these were never read


@given(st.integers(0, 2**50))
def test_a_committed_place_survives_the_broker(offset):
    assert place_in(to_commit(offset)) == offset


@pytest.mark.parametrize("note", ["", None, "x", "99999", "4096", "-1", "²"])
def test_a_note_of_somebody_else_is_no_place(note):
    assert place_in(OffsetAndMetadata(5, note, -1)) == 5 * PLACES


def test_nothing_committed_is_the_beginning():
    assert place_in(None) == place_in(OffsetAndMetadata(-1, "", -1)) == 0


def test_partitions_are_those_of_every_kafka_client():
    """Known answers of Java's Utils.murmur2 ("21": -973932308, "foobar": -790332482), positive and modulo."""
    assert partition_of("21", 2**31 - 1) == (-973932308 & 0x7FFFFFFF) % (2**31 - 1)
    assert partition_of("foobar", 100) == (-790332482 & 0x7FFFFFFF) % 100


def test_the_layout_is_as_written_down():
    """Records in the log depend on it: this test must not be changed."""
    packed = pack([Entry("k", b"ab"), Entry(None, b"")])
    assert packed == b"\x00\x02" + b"\x00\x00\x00\x01\x00\x00\x00\x02" + b"\xff\xff\xff\xff\x00\x00\x00\x00" + b"kab"
    assert packing.first_offset(10, 3) == 11 * 4096 - 3
