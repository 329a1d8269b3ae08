"""Consent over a whole run: gateway, collector, joiner and rewarder in one folder, which is searched afterwards."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from contracts.ids import is_withheld
from contracts.topics import EPISODES, OUTCOMES, REFUSALS, TURNS
from infra.cli.subject import rotate_key, set_opted_out
from infra.clock import system_clock
from infra.db.engine import reading
from infra.db.query import select
from infra.db.tables.ingest import EpisodeRow, OutcomeRow, RefusalRow
from infra.db.tables.rewarding import SampleRow
from infra.secrets import load_secrets
from infra.stream import Stream
from infra.telemetry import _JsonLines
from ingest.join.joiner import Joiner
from registry.console.accounting import read_accounting
from rewarding.rewarder import Rewarder
from serving.capture import NOT_SEARCHED
from serving.consent import People
from serving.openai import read_caller
from tests.collector import cloud_event, collecting, send
from tests.unit.serving.conftest import Deployment, policy

MARK = "do_not_keep_me"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_SERVING_PEOPLE_SECONDS", "0.05")


@pytest.fixture
def logs(gateway: Deployment) -> Iterator[Path]:
    """Everything that any process would log, down to its smallest remark, in a file of the folder."""
    file = gateway.settings.home / "logs" / "all.log"
    file.parent.mkdir()
    handler = logging.FileHandler(file)
    handler.setFormatter(_JsonLines("test"))
    handler.addFilter(lambda record: not record.name.startswith("http"))  # the test's own client
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield file
    root.removeHandler(handler)
    root.setLevel(before)
    handler.close()


def whole_run(gateway: Deployment) -> None:
    policies = {"tab": policy()}
    gateway.log.ensure([EPISODES])
    stages = (
        ("joiner", (TURNS, OUTCOMES, REFUSALS), Joiner(policies, system_clock).apply),
        ("rewarding", (EPISODES,), Rewarder(policies).apply),
    )
    for group, topics, apply in stages:
        stream = Stream(gateway.database, gateway.log, group, topics, apply)
        while stream.step(timeout_s=0.3):
            pass
        stream.close()


def found(gateway: Deployment, *texts: str) -> list[tuple[str, str]]:
    files = [file for file in gateway.settings.home.rglob("*") if file.is_file()]
    return [(file.name, text) for file in files for text in texts if text.encode() in file.read_bytes()]


NO = ({"X-Consent": "false"}, {"X-Consent": ""}, {})


def test_without_consent_nothing_but_counts_is_in_any_file(gateway: Deployment, logs: Path) -> None:
    subject, episode = f"{MARK}_person", f"ep-{MARK}"
    with collecting(gateway.log, gateway.settings.home) as client:
        for n, consent in enumerate(NO):
            headers = {"X-Subject": subject, "X-Episode-Id": f"{episode}-{n}", **consent}
            body = {"model": "tab", "prompt": f"{MARK} = 'of a person'\n", "stream": n == 0}
            response = gateway.http.post("/v1/completions", json=body, headers=headers)
            if consent == {"X-Consent": ""}:
                assert response.status_code == 400, "neither yes nor no"
                continue
            turn_id = response.headers["X-Turn-Id"]
            assert is_withheld(turn_id)
            told = [
                cloud_event("accepted", f"{MARK}-{n}-a", turnid=turn_id),
                cloud_event("follow_up", f"{MARK}-{n}-f", turnid=turn_id, data={"text": f"{MARK}, please"}),
                cloud_event("accepted", f"{MARK}-{n}-e", turnid=None, episodeid=f"{episode}-{n}", consent=False),
            ]
            results = send(client, told).json()["results"]
            assert [one["reason"] for one in results] == ["no_consent"] * 3
    gateway.until(lambda: gateway.counted("turns_without_consent") == 2)
    whole_run(gateway)
    hashes = load_secrets(gateway.settings.home).hashes(subject)
    assert found(gateway, MARK, *hashes) == []
    assert "do_not" not in logs.read_text() and logs.stat().st_size > 0
    with reading(gateway.database) as session:
        books = read_accounting(session, "tab")
        assert not session.exec(select(EpisodeRow)).all() and not session.exec(select(OutcomeRow)).all()
        assert not session.exec(select(RefusalRow)).all()
    assert {one.name: one.count for one in books.refused} == {"no_consent": 6}


def test_with_consent_the_same_search_finds_it(gateway: Deployment, logs: Path) -> None:
    """Else the test above would prove nothing."""
    turn_id = gateway.ask(f"{MARK} = 1\n", headers={"X-Episode-Id": f"ep-{MARK}"}).headers["X-Turn-Id"]
    with collecting(gateway.log, gateway.settings.home) as client:
        send(client, cloud_event("follow_up", "f", turnid=turn_id, data={"text": MARK}))
    whole_run(gateway)
    assert {"log.db", "slipstream.db"} <= {name.removesuffix("-wal") for name, _ in found(gateway, MARK)}


def test_a_person_who_opted_out_for_good_counts_as_no_consent_whatever_the_header_says(gateway: Deployment) -> None:
    assert not is_withheld(gateway.ask(headers={"X-Subject": "ada"}).headers["X-Turn-Id"])
    set_opted_out(gateway.settings, "ada", True)
    gateway.until(lambda: is_withheld(gateway.ask(headers={"X-Subject": "ada"}).headers["X-Turn-Id"]))
    kept = len(gateway.turns())
    answer = gateway.ask(f"{MARK} = 1\n", headers={"X-Subject": "ada"})
    assert answer.json()["slipstream"]["captured"] is False and answer.status_code == 200
    assert not is_withheld(gateway.ask(headers={"X-Subject": "bob"}).headers["X-Turn-Id"]), "others are not concerned"
    assert len(gateway.turns()) == kept + 1 and found(gateway, MARK) == []
    rotate_key(gateway.settings, 0)  # a new key, and every older one destroyed
    gateway.until(lambda: gateway.ask(headers={"X-Subject": "bob"}).json()["slipstream"]["captured"])
    assert is_withheld(gateway.ask(headers={"X-Subject": "ada"}).headers["X-Turn-Id"]), "the register outlives the keys"
    set_opted_out(gateway.settings, "ada", False)
    gateway.until(lambda: not is_withheld(gateway.ask(headers={"X-Subject": "ada"}).headers["X-Turn-Id"]))


def test_new_turns_are_stored_under_the_new_key_without_a_restart(gateway: Deployment) -> None:
    gateway.ask(headers={"X-Subject": "ada", "X-Episode-Id": "ep-1"})
    rotate_key(gateway.settings, None)
    new, old = load_secrets(gateway.settings.home).hashes("ada")

    def stored() -> set[str]:
        gateway.ask(headers={"X-Subject": "ada", "X-Episode-Id": "ep-2"})
        return {turn.subject for turn in gateway.turns()}

    gateway.until(lambda: stored() == {old, new})


def test_who_opted_out_stays_known_while_the_database_is_away(gateway: Deployment) -> None:
    set_opted_out(gateway.settings, "ada", True)
    people = People(gateway.settings.home, gateway.database)
    with sqlite3.connect(gateway.settings.home / "slipstream.db") as connection:
        connection.execute("ALTER TABLE people_opt_outs RENAME TO away")
    people.refresh()
    assert not people.meet("ada", "ep", consent=True).consents and people.meet("bob", "ep", consent=True).consents
    with sqlite3.connect(gateway.settings.home / "slipstream.db") as connection:
        connection.execute("ALTER TABLE away RENAME TO people_opt_outs")


def test_an_anonymous_person_is_an_episode_and_can_opt_out_as_one(gateway: Deployment) -> None:
    people = People(gateway.settings.home, gateway.database)
    one, other = (people.meet(None, name, consent=True) for name in ("ep-1", "ep-2"))
    assert one.subject != other.subject and one.consents
    assert one.subject == people.meet("episode ep-1", "whatever", consent=True).subject


KEY = "ghp_" + "a1B2" * 9


def test_secrets_in_a_prompt_mark_the_turn_by_kind_and_keep_it_out_of_training(gateway: Deployment, logs: Path) -> None:
    gateway.ask(f'token = "{KEY}"\n')
    chat = {"model": "tab", "messages": [{"role": "user", "content": f"why does {KEY} not work?"}]}
    gateway.http.post("/v1/chat/completions", json=chat, headers={"X-Consent": "true"})
    gateway.ask("import os\n")
    marked = [turn.secrets for turn in gateway.turns()]
    assert sorted(marked) == [(), ("github-token",), ("github-token",)]
    gateway.until(lambda: gateway.counted("turns_with_secrets") == 2)
    with collecting(gateway.log, gateway.settings.home) as client:
        for n, turn in enumerate(gateway.turns()):
            told = (cloud_event("accepted", f"a{n}", turnid=turn.turn_id), cloud_event("closed", f"c{n}", turnid=turn.turn_id))
            assert send(client, list(told)).status_code == 202
    whole_run(gateway)
    with reading(gateway.database) as session:
        samples = sorted((row.state, row.reason, row.body != "") for row in session.exec(select(SampleRow)).all())
    assert samples == [("excluded", "secrets", False), ("excluded", "secrets", False), ("ready", None, True)]
    assert KEY not in logs.read_text()


def test_a_prompt_of_token_ids_is_searched_as_text(gateway: Deployment) -> None:
    engine_text = f'k = "{KEY}"'
    ids = gateway.ask(engine_text, return_token_ids=True).json()["choices"][0]["prompt_token_ids"]
    gateway.ask(ids)
    assert [turn.secrets for turn in gateway.turns()] == [("github-token",), ("github-token",)]


def test_a_turn_that_cannot_be_searched_is_kept_and_never_trained(gateway: Deployment, monkeypatch, caplog) -> None:
    def broken(_text: str) -> tuple[str, ...]:
        raise RuntimeError(f"cannot read {KEY}")

    monkeypatch.setattr("serving.capture.kinds", broken)
    answer = gateway.ask("import os\n")
    assert answer.json()["slipstream"]["captured"] is True
    assert [turn.secrets for turn in gateway.turns()] == [(NOT_SEARCHED,)]
    assert KEY not in caplog.text and "RuntimeError" in caplog.text


@pytest.mark.parametrize(("sent", "name"), [("Łukasz".encode(), "Łukasz"), (b"Jos\xe9", "José"), (b"ada", "ada")])
def test_a_name_is_the_one_that_the_client_wrote(sent: bytes, name: str) -> None:
    assert read_caller(Headers(raw=[(b"x-subject", sent)])).subject == name
