"""Bodies: what is compressed, too large, no JSON, or of another kind; and that a bad element harms nobody beside it."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from fastapi.testclient import TestClient

from infra.eventlog.embedded import EmbeddedLog
from ingest.collect.inflate import TooLarge, inflate
from ingest.collect.pieces import NotJson, cut
from tests.collector import BATCH, ONE, cloud_event, collecting, outcomes, refusals, send

GOOD = json.dumps(cloud_event()).encode()


def squeeze(body: bytes, encoding: str) -> bytes:
    return gzip.compress(body) if encoding == "gzip" else zstandard.compress(body)


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "GZIP"])
def test_compressed_bodies_are_understood(client: TestClient, log: EmbeddedLog, encoding: str) -> None:
    told = [cloud_event(event_id=f"e{number}") for number in range(20)]
    answer = send(client, squeeze(json.dumps(told).encode(), encoding.lower()), content_type=BATCH, content_encoding=encoding)
    assert answer.status_code == 202 and len(outcomes(log)) == 20


def test_a_body_in_parts_is_one(log: EmbeddedLog) -> None:
    assert inflate(gzip.compress(b"[1,") + gzip.compress(b"2]"), "gzip", 100) == b"[1,2]"
    assert inflate(zstandard.compress(b"[1,") + zstandard.compress(b"2]"), "zstd", 100) == b"[1,2]"


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_bomb_is_put_out_before_it_takes_memory(encoding: str) -> None:
    bomb = squeeze(b"\0" * (64 * 2**20), encoding)
    assert len(bomb) < 100_000
    tracemalloc.start()
    with pytest.raises(TooLarge):
        inflate(bomb, encoding, 2**20)
    assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    tracemalloc.stop()


def test_frames_that_ask_for_much_memory_and_many_tiny_members_are_refused() -> None:
    wide = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=27)).compressobj()
    with pytest.raises(ValueError, match="zstd"):
        inflate(wide.compress(b"[]") + wide.flush(), "zstd", 1000)
    with pytest.raises(ValueError, match="members"):
        inflate(gzip.compress(b"") * 1000, "gzip", 1000)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_bomb_gets_413_and_leaves_a_refusal(client: TestClient, log: EmbeddedLog, encoding: str) -> None:
    answer = send(client, squeeze(b"[" + b" " * 2**22 + b"]", encoding), content_type=BATCH, content_encoding=encoding)
    assert answer.status_code == 413 and "20480" in answer.json()["error"]["message"]
    (refusal,) = refusals(log)
    assert (refusal.reason, refusal.event_id) == ("too_large", None)


@pytest.mark.parametrize(("body", "encoding"), [(b"no gzip", "gzip"), (gzip.compress(GOOD)[:-9], "gzip"), (b"no zstd", "zstd")])
def test_what_is_not_in_its_encoding_gets_400(client: TestClient, log: EmbeddedLog, body: bytes, encoding: str) -> None:
    answer = send(client, body, content_type=ONE, content_encoding=encoding)
    assert answer.status_code == 400 and encoding in answer.json()["error"]["message"]
    assert refusals(log)[0].reason == "bad_encoding" and outcomes(log) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": "application/json"},
        {"content_type": ""},
        {"content_type": f"{ONE}; charset=utf-16"},
        {"content_encoding": "br"},
        {"content_encoding": "gzip, gzip"},
    ],
)
def test_other_kinds_of_bodies_get_415_and_hear_which_are_taken(client: TestClient, headers: dict[str, str]) -> None:
    answer = send(client, GOOD, **headers)
    assert answer.status_code == 415
    assert answer.headers.get("accept") or answer.headers.get("accept-encoding")


def test_the_character_set_may_be_named(client: TestClient) -> None:
    assert send(client, GOOD, content_type=f'{ONE}; charset="UTF-8"').status_code == 202


def test_too_many_events_or_bytes_get_413_and_nothing_is_taken(client: TestClient, log: EmbeddedLog) -> None:
    answer = send(client, [cloud_event()] * 51)
    assert answer.status_code == 413 and answer.json()["error"]["message"] == "more than 50 events, the most that a batch may have"
    assert send(client, b"[" + b" " * 30_000 + b"]").status_code == 413
    assert {refusal.reason for refusal in refusals(log)} == {"too_large"} and len(refusals(log)) == 2
    assert outcomes(log) == []


def test_an_oversized_event_is_refused_alone_and_says_the_limit(client: TestClient, log: EmbeddedLog) -> None:
    large = cloud_event("follow_up", "large", data={"text": "é" * 600})
    for body in (json.dumps([cloud_event(event_id="a"), large], ensure_ascii=False), json.dumps(large, ensure_ascii=False)):
        answer = send(client, body.encode())
        assert answer.status_code == 207
        fate = answer.json()["results"][-1]
        assert (fate["id"], fate["code"], fate["reason"]) == ("large", 413, "too_large") and "1000" in fate["detail"]
    assert [outcome.event_id for outcome in outcomes(log)] == ["a"]
    assert {refusal.refusal_id for refusal in refusals(log)} == {"large"}


@pytest.mark.parametrize(
    "body", [b"", b" ", b"{", b"[" * 100_000, b"\xff", b"NaN", GOOD + b"x", GOOD.decode().encode("utf-16"), b"\xef\xbb\xbf" + GOOD]
)
def test_one_event_that_is_no_json_gets_400(client: TestClient, log: EmbeddedLog, body: bytes) -> None:
    body = body[:15_000]
    answer = send(client, body, content_type=ONE)
    assert answer.status_code == 400 and "not JSON" in answer.json()["error"]["message"]
    assert refusals(log)[0].reason == "not_json" and outcomes(log) == []


@pytest.mark.parametrize("body", [b"{}", GOOD, b"[", b"[1", b"[1,]", b"[,1]", b"[1]x", b'["a]', b"[1}", b"[}", b"", b"null"])
def test_a_batch_whose_events_cannot_be_told_apart_gets_400(client: TestClient, body: bytes) -> None:
    assert send(client, body, content_type=BATCH).status_code == 400


BAD = {
    "NaN": b"NaN",
    "infinity": b'{"id": "x", "data": {"characters": -Infinity}}',
    "a name twice": b'{"id": "x", "id": "y"}',
    "raw control character": b'{"id": "a\x01b"}',
    "raw NUL": b'{"id": "a\x00b"}',
    "bytes that are no UTF-8": b'{"id": "\xff\xfe"}',
    "a surrogate in UTF-8": b'{"id": "\xed\xa0\x80"}',
    "a number with 5,000 digits": b'{"id": ' + b"9" * 5000 + b"}",
    "nested 5,000 deep": b"[" * 5000 + b"]" * 5000,
    "objects nested 3,000 deep": b'{"a":' * 3000 + b"1" + b"}" * 3000,
    "a comma too many": b'{"id": "x",}',
    "no quotes": b"{id: 1}",
    "words": b"hello",
    "a lone escape": b'{"id": "\\x"}',
    "half a surrogate pair, escaped": b'{"id": "\\ud800"}',
    "an escaped NUL": b'{"id": "a\\u0000b"}',
    "1e999": b'{"id": 1e999}',
    "null": b"null",
    "a list": b"[[]]",
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_an_element_that_is_no_event_harms_nobody_beside_it(log: EmbeddedLog, tmp_path: Path, bad: bytes) -> None:
    first, last = (json.dumps(cloud_event(event_id=name)).encode() for name in ("a", "b"))
    with collecting(log, tmp_path) as client:
        answer = send(client, b"[ " + first + b" ,\n" + bad + b", " + last + b"]\n")
    assert answer.status_code == 207
    fates = answer.json()["results"]
    assert [fate["status"] for fate in fates] == ["taken", "refused", "taken"] and fates[1]["code"] in (400, 422)
    assert {outcome.event_id for outcome in outcomes(log)} == {"a", "b"}
    assert len(refusals(log)) == 1


def test_strings_hide_what_looks_like_structure() -> None:
    tricky = [{"id": '],[{"\\'}, {"id": "a,b"}, {"id": "\\\\"}, {"id": '\\"'}]
    text = json.dumps(tricky).encode()
    assert [piece.value for piece in cut(text, batch=True)] == tricky
    cut_apart = cut(text[:-1] + b", NaN]", batch=True)
    assert [piece.value for piece in cut_apart] == [*tricky, None] and cut_apart[-1].fault == "NaN is not JSON"


def test_taking_apart_what_is_broken_takes_time_like_its_length() -> None:
    """A body of quotes, brackets or backslashes must not be looked at again and again."""
    for body in (b'["' + b"\\" * 400_000, b'[""' * 100_000, b"[" * 200_000, b'["' + b'\\"' * 200_000, b"[," * 100_000):
        with pytest.raises(NotJson):
            cut(body, batch=True)


def test_nothing_is_looked_at_behind_the_most_events_that_a_batch_may_have() -> None:
    """What follows them is no JSON, and nobody notices."""
    for first in (b"1", b"NaN"):
        for rest in (b"1", b"NaN", b'"', b"]" * 9, b""):
            with pytest.raises(TooLarge, match="more than 3 events"):
                cut(b"[" + first + b", 1, 1, " + rest, batch=True, most=3)
        assert len(cut(b"[" + first + b", 1, 1]", batch=True, most=3)) == 3


def test_a_broken_body_is_searched_for_its_events_so_far_and_no_further() -> None:
    """A few kilobytes, compressed, that would be looked at for seconds; behind the limit nothing is noticed."""
    for much in (b"[],", b'"",', b"[", b"{"):
        broken = b"[NaN,[" + much * 2**20
        with pytest.raises(TooLarge, match="too much in it"):
            cut(broken + b'"', batch=True)
    whole = b"[[" + b"1," * 2**20 + b"1], 2]"
    assert [piece.fault for piece in cut(whole, batch=True)] == [None, None], "what is not broken is not searched"


def test_a_number_with_too_many_digits_is_said_in_plain_words() -> None:
    (piece,) = cut(b"[" + b"9" * 5000 + b"]", batch=True)
    assert piece.fault == "a number has more than 4300 digits"
