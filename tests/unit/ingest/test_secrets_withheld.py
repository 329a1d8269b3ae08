"""A secret sent where none belongs is in no answer's details, no refusal, and nothing that `slipstream dlq` prints."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from typer.testing import CliRunner

from contracts.dead_letter import DeadLetter
from contracts.errors import Poison
from contracts.topics import ALL, TURNS, dead_letter, grave
from infra.cli.main import app
from infra.db.engine import open_db
from infra.dead_letters import burial
from infra.eventlog.open import open_log
from infra.eventlog.port import Entry, Message
from infra.settings import Settings
from tests.collector import cloud_event, collecting, refusals, send

KEY = "ghp_" + "a1B2" * 9


def test_the_detail_of_a_refusal_does_not_quote_it(tmp_path: Path):
    log = open_log(Settings(home=tmp_path))
    log.ensure(ALL)
    with collecting(log, tmp_path) as client:
        wrong = [cloud_event("accepted", "e1", turnid=KEY), cloud_event("accepted", "e2", policy=KEY)]
        answer = send(client, wrong)
    results = answer.json()["results"]
    assert [one["status"] for one in results] == ["refused"] * 2 and not any(KEY in one["detail"] for one in results)
    told = refusals(log)
    assert told and not any(KEY in refusal.detail for refusal in told)
    assert any("github-token" in refusal.detail for refusal in told), "what kind it was is said"
    log.close()


def test_a_dead_letter_is_shown_without_it_and_kept_as_it_was(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SLIPSTREAM_HOME", "set and put back by the test")
    value = b'{"text": "token = \\"%s\\"", "turn_id": ' % KEY.encode()
    row = burial("joiner", Message(TURNS.name, 1, 7, "ep", value, 0), Poison("malformed_turn", f"got '{KEY}'"))
    letter = DeadLetter.decode(row.value)
    assert KEY not in letter.detail and "github-token" in letter.detail and letter.value == value
    open_db(Settings(home=tmp_path).database).dispose()
    log = open_log(Settings(home=tmp_path))
    log.ensure([grave(topic) for topic in ALL])
    log.append(dead_letter(TURNS.name), [Entry(None, letter.encode())])
    log.close()
    for words in (("list",), ("show", TURNS.name, "1", "7")):
        shown = CliRunner().invoke(app, ["dlq", *words, "--home", str(tmp_path)])
        assert shown.exit_code == 0, shown.output
        assert KEY not in shown.output
    assert "github-token" in shown.output and datetime.now(UTC).strftime("%Y") in shown.output
