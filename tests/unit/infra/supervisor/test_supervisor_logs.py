"""What a process said last, out of its log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.supervisor.logs import last_sentence, latest

CRASH = json.dumps({"message": "serving crashed", "trace": "Traceback (most recent call last):\n  File\nValueError: no hay\n"})


@pytest.mark.parametrize(
    ("lines", "says", "sentence"),
    [
        ([], "", ""),
        (['{"message": "starts"}', '{"message": "waits for hay"}', ""], "waits for hay", "waits for hay"),
        (['{"message": "starts"}', CRASH], "ValueError: no hay", "ValueError: no hay"),
        ([CRASH.replace("hay", "hay\\n(Background on this error at: somewhere)")], "ValueError: no hay", "ValueError: no hay"),
        (['{"message": "cannot"}', "stage: no hay; buy some"], "stage: no hay; buy some", "stage: no hay; buy some"),
        (["stage: no hay; buy some", '{"message": "ends"}'], "ends", "stage: no hay; buy some"),
        (['{"message": 3}', "{broken", '"text"'], '"text"', '"text"'),
    ],
)
def test_the_last_words(tmp_path: Path, lines, says, sentence):
    log = tmp_path / "log"
    log.write_text("an earlier run\n" + "\n".join(lines))
    start = len("an earlier run\n")
    assert (latest(log, start), last_sentence(log, start)) == (says, sentence)


def test_a_log_that_is_not_there_says_nothing(tmp_path):
    assert latest(tmp_path / "none") == ""


def test_only_the_end_of_a_long_log_is_read(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"\xff" * 20_000 + b'\n{"message": "here"}\n')
    assert latest(log) == "here"
