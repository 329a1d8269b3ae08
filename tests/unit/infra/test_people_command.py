"""`slipstream subject` as it is typed: what it prints, with which exit code, and that the name itself is written nowhere."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from contracts.errors import StartError
from contracts.topics import OUTCOMES, TURNS
from infra.cli.main import app
from infra.db.engine import open_db, reading, writing
from infra.db.tables.ingest import RevisionRow
from infra.db.tables.people import DeletionRow
from infra.eventlog.open import open_log
from infra.eventlog.port import Entry
from infra.people import deletion
from infra.people.names import LONGEST, checked
from infra.secrets import KEYS, REGISTER, load_secrets
from infra.settings import Settings
from serving.openai import Caller
from tests.conftest import make_outcome, make_turn

NAME = "ada.lovelace@example.org"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (KEYS, REGISTER):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLIPSTREAM_HOME", "set and put back by the test")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def run(home: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["subject", *words, "--home", str(home)])


def tell(home: Path) -> None:
    """A turn and an outcome that nobody has read yet."""
    open_db(Settings(home=home).database).dispose()
    log = open_log(Settings(home=home))
    log.ensure([TURNS, OUTCOMES])
    turn = make_turn(subject=load_secrets(home).hashes(NAME)[-1])
    for topic, record in ((TURNS, turn), (OUTCOMES, make_outcome("accepted", "e1"))):
        log.append(topic.name, [Entry("ep-1", record.encode())])
    log.close()


def test_a_person_is_exported_then_deleted_and_nothing_is_left(home, tmp_path):
    tell(home)
    assert run(home, "rotate-key").exit_code == 0, "what is stored under an older key is found all the same"
    exported = run(home, "export", NAME, "--to", str(tmp_path / "ada.json"))
    assert exported.exit_code == 0 and "2 log" in exported.stderr
    assert json.loads((tmp_path / "ada.json").read_text())["log"][1]["record"]["event_id"] == "e1"
    assert run(home, "export", NAME, "--to", str(tmp_path / "ada.json")).exit_code == 2, "no file is written over"
    deleted = run(home, "delete", NAME, "--json")
    told = json.loads(deleted.stdout)
    assert deleted.exit_code == 0 and told["done"] and told["went"]["log records"] == 2 and told["touched"] == []
    again = run(home, "delete", NAME)
    assert again.exit_code == 0 and "no checkpoint" in again.stderr
    empty = run(home, "export", NAME)
    assert empty.exit_code == 0 and "nothing is stored" in empty.stderr
    assert len(list(tmp_path.glob("subject-*.json"))) == 1
    files = [file for file in home.rglob("*") if file.is_file()]
    assert files and not any(NAME.encode() in file.read_bytes() for file in files)


def test_what_has_to_wait_is_said_and_finished_later(home):
    tell(home)
    settings = Settings(home=home)
    open_db(settings.database).dispose()
    away = sqlite3.connect(home / "log.db", isolation_level=None)
    away.execute("BEGIN EXCLUSIVE")
    waiting = run(home, "delete", NAME)
    assert waiting.exit_code == 1 and "something has to wait" in waiting.stderr and "away" in waiting.stderr
    away.execute("ROLLBACK")
    away.close()
    engine, log = open_db(settings.database), open_log(settings)
    (deletion_id,) = deletion.unfinished(engine)
    assert deletion.finish(deletion.places(settings, engine, log), deletion_id, 1)
    with reading(engine) as session:
        row = session.get(DeletionRow, deletion_id)
        assert row is not None and row.done_ms == 1 and json.loads(row.report)["log records"] == 2
    assert deletion.unfinished(engine) == []
    log.close()
    engine.dispose()


def test_opting_out_and_in_is_in_the_export(home, tmp_path):
    tell(home)

    def opted_out(to: str) -> bool:
        assert run(home, "export", NAME, "--to", str(tmp_path / to)).exit_code == 0
        return bool(json.loads((tmp_path / to).read_text())["manifest"]["opted_out"])

    assert not opted_out("1")
    for _ in range(2):
        assert run(home, "opt-out", NAME).exit_code == 0
    assert opted_out("2")
    assert run(home, "opt-in", NAME).exit_code == 0
    assert not opted_out("3")


def test_a_key_is_forgotten_only_when_that_is_asked_for_and_says_what_it_means(home):
    tell(home)
    assert "1 older" in run(home, "rotate-key").stderr
    said = run(home, "rotate-key", "--forget-older-than", "0").stderr
    assert "forgotten" in said and "neither to export nor to delete" in said
    assert "nothing is stored" in run(home, "export", NAME).stderr
    assert json.loads(run(home, "delete", NAME, "--json").stdout)["went"] == {}


def test_what_was_stored_before_a_forgotten_key_is_not_said_to_be_nothing(home):
    tell(home)
    before = run(home, "delete", "somebody else")
    assert "nothing was found under this name" in before.stderr and "forgotten" not in before.stderr
    stored = RevisionRow(episode_id="ep-1", revision=1, policy="tab", subject="h", body="{}", published_ms=int(time.time() * 1000))
    with writing(open_db(Settings(home=home).database)) as session:
        session.add(stored)
    assert "forgotten" not in run(home, "delete", NAME).stderr
    rotated = run(home, "rotate-key", "--forget-older-than", "0").stderr
    assert "; 0 older ones are kept" in rotated and "stored under it can" in rotated
    for words in (("delete", NAME), ("delete", NAME, "--json"), ("export", NAME)):
        assert "keys were forgotten: what was stored before 20" in run(home, *words).stderr, words


def test_several_forgotten_keys_are_several(home):
    tell(home)
    assert "; 1 older one is kept" in run(home, "rotate-key").stderr
    assert "what was stored under them can" in run(home, "rotate-key", "--forget-older-than", "0").stderr


@pytest.mark.parametrize("command", ["export", "delete", "opt-out", "opt-in"])
@pytest.mark.parametrize("name", ["", "x" * 513, "caf\udce9"])
def test_a_name_that_nobody_can_have_is_refused(home, command, name):
    tell(home)
    said = run(home, command, name)
    assert said.exit_code == 2 and "a person's name is" in said.stderr, said.stderr


def test_a_name_may_be_whatever_the_gateway_takes():
    (longest,) = [rule.max_length for rule in Caller.model_fields["subject"].metadata if hasattr(rule, "max_length")]
    assert checked("x" * longest) and longest == LONGEST
    with pytest.raises(StartError, match="1 to 512 characters"):
        checked("x" * (longest + 1))
