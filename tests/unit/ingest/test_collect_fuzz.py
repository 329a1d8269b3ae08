"""Whatever is sent gets an answer that the OpenAPI foresees, and a good neighbour is taken all the same.

Schemathesis makes requests out of the OpenAPI, valid and invalid ones; Hypothesis makes bodies that no schema describes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from contracts.outcome import Outcome, Refusal
from infra.clock import system_clock
from infra.eventlog.embedded import EmbeddedLog
from ingest.collect.decode import decode
from ingest.collect.pieces import NotJson, cut
from tests.collector import BATCH, ONE, cloud_event, collecting, send

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
PHASES = [Phase.explicit, Phase.generate]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("fuzz")
    log = EmbeddedLog(folder / "log.db")
    with collecting(log, folder, max_event_bytes=2000, max_batch_events=20, max_body_kb=64, gather_ms=0) as made:
        yield made
    log.close()


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_schemathesis_finds_no_answer_that_the_openapi_does_not_foresee(client: TestClient, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", client.app)
    seen: set[int] = set()

    @settings(max_examples=60, deadline=None, suppress_health_check=QUIET, phases=PHASES, database=None)
    @given(case=schema["/v1/events"]["POST"].as_strategy(generation_mode=mode))
    def drive(case: schemathesis.Case) -> None:
        response = case.call(session=client)
        case.validate_response(response, checks=CHECKS)
        seen.add(response.status_code)

    drive()
    reached = {202, 207} if mode == GenerationMode.POSITIVE else {400}
    assert seen & reached, f"some requests got as far as they should, not only {seen}"


def test_other_methods_are_told_which_one_there_is(client: TestClient) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = client.request(method, "/v1/events")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ATTRIBUTES = (
    "specversion",
    "id",
    "source",
    "type",
    "time",
    "policy",
    "turnid",
    "episodeid",
    "consent",
    "data",
    "data_base64",
    "extra",
)
EVENTS = ANYTHING | st.dictionaries(st.sampled_from(ATTRIBUTES), ANYTHING).map(lambda change: {**cloud_event(), **change})
TEXTS = EVENTS.map(lambda event: json.dumps(event).encode())
"""json.dumps writes NaN, Infinity and lone surrogates, as careless clients do."""

BROKEN = st.binary(max_size=200) | st.tuples(TEXTS, st.integers(0, 300), st.binary(max_size=3)).map(
    lambda given: given[0][: given[1]] + given[2] + given[0][given[1] :]
)
NESTED = st.tuples(st.sampled_from([b"[", b'{"a":']), st.integers(1, 3000)).map(
    lambda given: given[0] * given[1] + b"1" + {b"[": b"]", b'{"a":': b"}"}[given[0]] * given[1]
)


@settings(max_examples=200, deadline=None, suppress_health_check=QUIET, database=None)
@given(body=TEXTS | BROKEN | NESTED, batch=st.booleans())
def test_every_piece_of_every_body_gets_a_record_that_can_be_read_again(body: bytes, batch: bool) -> None:
    try:
        pieces = cut(body, batch)
    except NotJson:
        return
    for piece in pieces:
        record = decode(piece, system_clock(), {"tab"}, 2000).record
        assert isinstance(record, Outcome | Refusal) and type(record).decode(record.encode()) == record


@settings(max_examples=150, deadline=None, suppress_health_check=QUIET, database=None)
@given(
    body=BROKEN | TEXTS | NESTED,
    kind=st.sampled_from([ONE, BATCH, "text/plain"]),
    encoding=st.sampled_from(["identity", "gzip", "zstd"]),
)
def test_raw_bodies_never_get_a_server_error(client: TestClient, body: bytes, kind: str, encoding: str) -> None:
    answer = send(client, body, content_type=kind, content_encoding=encoding)
    assert answer.status_code in (202, 207, 400, 413, 415), answer.text
    json.loads(answer.content)


@settings(max_examples=150, deadline=None, suppress_health_check=QUIET, database=None)
@given(
    bad=TEXTS
    | NESTED
    | st.sampled_from([b"NaN", b'{"id": "\xff"}', b'{"id": "\x00"}', b'{"a": 1, "a": 2}', b"[" + b"1" * 5000 + b"]"])
)
def test_a_neighbour_is_taken_whatever_stands_beside_it(client: TestClient, bad: bytes) -> None:
    good = json.dumps(cloud_event(event_id="good")).encode()
    answer = send(client, b"[" + bad + b"," + good + b"]")
    assert answer.status_code in (202, 207) and answer.json()["results"][-1] == {"id": "good", "status": "taken"}
    assert len(answer.json()["results"]) == 2
