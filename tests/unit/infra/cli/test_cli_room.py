"""Which demo goes on and which begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.errors import StartError
from infra.cli.room import make_room


def test_an_interrupted_demo_keeps_its_folder(tmp_path: Path):
    home = tmp_path / "demo"
    make_room(home, "tiny --seed 0")
    (home / "developers.db").write_text("state")
    make_room(home, "tiny --seed 0")
    assert (home / "developers.db").exists()


def test_a_finished_demo_makes_room_and_its_report_is_kept(tmp_path: Path):
    home = tmp_path / "demo"
    make_room(home, "tiny --seed 0")
    (home / "report.json").write_text("{}")
    make_room(home, "tiny --seed 0")
    assert not (home / "report.json").exists()
    assert [file.read_text() for file in (tmp_path / "demo-reports").iterdir()] == ["{}"]


def test_a_demo_that_was_asked_for_differently_begins_anew(tmp_path: Path, capsys):
    home = tmp_path / "demo"
    make_room(home, "tiny --seed 0")
    (home / "developers.db").write_text("state")
    make_room(home, "tiny --seed 1")
    assert not (home / "developers.db").exists()


def test_a_folder_that_cannot_be_written_gets_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="cannot prepare"):
        make_room(tmp_path / "file" / "demo", "tiny")
