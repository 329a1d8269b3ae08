"""The same state as a table for a terminal and as a line per change for a pipe."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from infra.cli.up import _show_when_ready
from infra.cli.view import Awaited, Lines, LiveTable, age
from infra.supervisor.state import Deployment, Life, ProcessState, write_state


def _deployment(*processes: ProcessState, **changes: object) -> Deployment:
    now = time.time()
    whole = {
        "kind": "up", "home": "/h", "pid": 9, "create_time": now, "since": now - 3, "updated": now, "ports": {},
        "addresses": {"gateway": "http://127.0.0.1:8600/v1"}, "memory_mb": 20.0, "peak_rss_mb": 30.0, "processes": processes,
    }  # fmt: skip
    return Deployment.model_validate(whole | changes)


STARTING = ProcessState(name="serving", life=Life.STARTING, pid=7, create_time=1.0, since=1.0)
READY = STARTING.model_copy(update={"life": Life.READY, "says": "loads [v1]", "memory_mb": 12.3})
BACKOFF = ProcessState(name="serving", life=Life.BACKOFF, restarts=2, says="ended by SIGKILL")


def test_a_pipe_gets_a_line_per_change_and_the_addresses_once():
    out = io.StringIO()
    with Lines(Console(file=out)) as view:
        for process in (STARTING, STARTING, READY, READY, BACKOFF, READY):
            view.show(_deployment(process))
        view.show(_deployment(READY, notice="the disk is full"))
        view.show(_deployment(READY, notice="the disk is full"))
    lines = [line.split(" ", 1)[1] for line in out.getvalue().splitlines()]
    assert lines == [
        "serving starting (process 7)",
        "serving ready (process 7)",
        "everything is ready after 3 s",
        "gateway http://127.0.0.1:8600/v1",
        "serving backoff: ended by SIGKILL",
        "serving ready (process 7)",
        "the disk is full",
    ]


def test_a_terminal_gets_a_table_with_everything_in_it():
    out = io.StringIO()
    with LiveTable(Console(file=out, force_terminal=True, width=140)) as view:
        view.show(_deployment(READY, BACKOFF.model_copy(update={"name": "joiner"}), notice="look here"))
        view.show(_deployment(READY))
    text = out.getvalue()
    words = ("serving", "12 MB", "loads [v1]", "joiner", "backoff", "ended by SIGKILL", "look here", "30 MB", "8600/v1", "Ctrl-C")
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(("seconds", "words"), [(-1, "0 s"), (120, "2 min"), (7199, "119 min"), (7320, "2 h 2 min")])
def test_ages_are_short(seconds, words):
    assert age(seconds) == words


def test_who_waits_is_told_what_for_once_it_takes_a_while_and_when_that_changes():
    awaited = Awaited(100.0)
    joiner = STARTING.model_copy(update={"name": "joiner"})
    starting, one, ready = _deployment(STARTING, joiner), _deployment(STARTING), _deployment(READY)
    away = _deployment(BACKOFF.model_copy(update={"says": "Kafka is away"}))
    long = _deployment(BACKOFF.model_copy(update={"says": "x" * 500}))

    def told(*looks: tuple[float, Deployment | None]) -> list[str]:
        return [awaited.words(deployment, now) for now, deployment in looks]

    assert told((100.5, starting), (103.0, None), (103.1, starting)) == ["", "", "waiting for serving, joiner"]
    assert told((105.0, one), (107.0, one), (111.0, one)) == ["", "waiting for serving", ""]
    assert told((112.0, away), (116.0, one), (120.0, away)) == ["waiting for serving; serving says: Kafka is away", "", ""]
    assert told((124.0, long), (128.0, ready)) == [f"waiting for serving; serving says: {'x' * 160}", ""]


@pytest.mark.parametrize(("restarts", "lived_s", "ready"), [(0, 1, True), (2, 1, False), (2, 60, True)])
def test_a_detached_up_does_not_believe_one_that_keeps_dying(tmp_path, restarts, lived_s, ready):
    (tmp_path / "run").mkdir()
    process = READY.model_copy(update={"restarts": restarts, "since": time.time() - lived_s})
    write_state(_deployment(process, home=str(tmp_path)))
    assert _show_when_ready(tmp_path, 9) is ready
