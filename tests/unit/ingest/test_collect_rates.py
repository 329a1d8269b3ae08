"""A key's rate at the collector's door: what a request costs, and what one beyond it hears."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.db.engine import open_db
from infra.keys import Scope, create_key
from tests.collector import BATCH, ONE, cloud_event, outcomes, send


@pytest.fixture
def limited(tmp_path: Path) -> Callable[[float], dict[str, str]]:
    """The headers of a new key with this rate."""

    def make(rate: float) -> dict[str, str]:
        engine = open_db(f"sqlite:///{tmp_path / 'keys.db'}")
        _, text = create_key(engine, "editor", [Scope.PRODUCER], rate, 1)
        engine.dispose()
        return {"authorization": f"Bearer {text}"}

    return make


def test_a_large_batch_is_taken_once_and_then_owed(client, log, limited):
    key = limited(1.0)
    batch = [cloud_event(event_id=f"e{number}") for number in range(50)]
    assert send(client, batch, **key).status_code == 202
    turned = send(client, cloud_event(event_id="late"), **key)
    assert turned.status_code == 429 and "1 events per second" in turned.json()["error"]["message"]
    assert 30 <= int(turned.headers["retry-after"]) <= 50
    assert len(outcomes(log)) == 50


WHOLE = {
    "not JSON": (400, b"{", {}),
    "no batch": (400, b"{}", {"content-type": BATCH}),
    "not in its encoding": (400, b"no gzip", {"content-encoding": "gzip"}),
    "too many events": (413, json.dumps([cloud_event()] * 51).encode(), {"content-type": BATCH}),
    "too many bytes": (413, b" " * 30_000, {}),
    "a bomb": (413, gzip.compress(b" " * 2**22), {"content-encoding": "gzip"}),
    "another kind": (415, b"x", {"content-type": "text/plain"}),
}


@pytest.mark.parametrize(("status", "body", "headers"), WHOLE.values(), ids=WHOLE.keys())
def test_a_request_that_fails_as_a_whole_costs_as_one_event(client, limited, status, body, headers):
    key = limited(0.3)  # three in ten seconds
    sent = [client.post("/v1/events", content=body, headers={"content-type": ONE, **headers, **key}) for _ in range(4)]
    assert [answer.status_code for answer in sent] == [status] * 3 + [429]


def test_a_key_beyond_its_rate_is_turned_away_unread_and_another_is_not(client, limited):
    spent, fresh = limited(0.1), limited(0.1)
    assert send(client, b"{", **spent).status_code == 400
    assert send(client, b"{", **spent).status_code == 429
    assert send(client, cloud_event(), **fresh).status_code == 202
