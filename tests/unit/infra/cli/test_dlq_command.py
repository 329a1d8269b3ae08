"""`slipstream dlq`, as an operator types it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from contracts.dead_letter import DeadLetter
from contracts.topics import EPISODES, dead_letter
from infra.cli.main import app
from infra.db.engine import open_db
from infra.eventlog.open import open_log
from infra.eventlog.port import Entry
from infra.settings import Settings
from infra.stream import Stream


@pytest.fixture
def dlq(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("SLIPSTREAM_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "160")
    return lambda *arguments: CliRunner().invoke(app, ["dlq", *arguments])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    settings = Settings(home=tmp_path)
    log = open_log(settings)
    log.ensure([EPISODES])
    log.append(EPISODES.name, [Entry("ep-1", b'{"episode_id": "ep-1"}'), Entry("ep-1", b"\xff\x00")])
    stream = Stream(open_db(settings.database), log, "g", [EPISODES], lambda _session, _found: None)
    while not stream.step(0.3):
        pass
    stream.close()
    log.close()
    return tmp_path


def test_list_show_retry(dlq):
    listed = dlq("list")
    assert listed.exit_code == 0, listed.stderr
    (row,) = [line.split() for line in listed.stdout.splitlines() if line.startswith("episodes")]
    assert row[:5] == ["episodes", "2", "0", "malformed_episodeclosed", "2"]
    topic, rest = row[-1].split("[")
    partition, offset = rest.split("]@")
    shown = dlq("show", topic, partition, offset)
    assert f"place     {row[-1]}" in shown.stdout and "ff00" in shown.stdout and "2 bytes" in shown.stdout
    assert '"episode_id": "ep-1"' in dlq("show", topic, partition, str(int(offset) - 1)).stdout
    first = dlq("retry", topic, partition, offset)
    assert first.stdout == f"put back {row[-1]} (malformed_episodeclosed)\n1 put back.\n"
    assert dlq("retry", "--all").stdout.endswith("1 put back, 1 had been before.\n")
    assert dlq("retry", "--topic", "episodes").stdout == "0 put back, 2 had been before.\n"


def test_a_topic_s_list_names_each_place_and_any_of_them_can_be_shown_and_put_back(dlq, home):
    assert dlq("list", "turns").stdout == "No dead letters of turns.\n"
    with closing(open_log(Settings(home=home))) as log:
        letters = [DeadLetter.decode(message.value) for message in log.scan(dead_letter(EPISODES.name))]
    places = [(str(letter.partition), str(letter.offset)) for letter in letters]
    assert len(places) == 2
    for number, (partition, offset) in enumerate(places):
        header, *rows = [line.split() for line in dlq("list", "episodes").stdout.splitlines()]
        assert header == ["partition", "offset", "reason", "buried", "put", "back"]
        assert [tuple(row[:2]) for row in rows] == places
        assert [row[6] == "no" for row in rows] == [place >= number for place in range(2)]
        for row, letter in zip(rows, letters, strict=True):
            assert row[2] == letter.reason and " ".join(row[3:6]) == f"{letter.at:%Y-%m-%d %H:%M:%S} UTC"
        assert dlq("show", "episodes", partition, offset).exit_code == 0
        assert dlq("retry", "episodes", partition, offset).stdout.endswith("1 put back.\n")


def test_a_topic_that_is_none_is_named_with_those_there_are(dlq):
    unknown = dlq("list", "episode")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert unknown.stderr.startswith("slipstream: there is no topic episode; there are ") and "episodes" in unknown.stderr


def test_what_is_not_there_and_what_makes_no_sense(dlq):
    missing = dlq("show", "episodes", "0", "99")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr.startswith("slipstream: there is no dead letter of episodes[0]@99")
    assert dlq("retry", "episodes", "0").exit_code == 2


@pytest.mark.parametrize("words", [("retry", "--topic", "nope"), ("retry", "nope", "0", "0"), ("show", "nope", "0", "0")])
def test_a_topic_that_is_none_is_never_an_empty_one(dlq, words):
    done = dlq(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("slipstream: there is no topic nope; there are ") and "episodes" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("episodes", "0", "0", "--all"),
        ("episodes", "0", "0", "--topic", "episodes"),
        ("--all", "--topic", "episodes"),
        (),
    ],
)
def test_a_retry_names_one_thing(dlq, words):
    done = dlq("retry", *words)
    said = "slipstream: name a place (TOPIC PARTITION OFFSET), or a --topic, or --all, and only one of them\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", said)
    assert dlq("retry", "--all").stdout.endswith("2 put back.\n"), "nothing was put back before"
