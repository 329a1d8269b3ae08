"""What dies starts again, later each time; what says that it cannot start ends the whole with its sentence."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from infra.supervisor.child import FORGIVEN_AFTER_S, LONGEST_WAIT_S, Child, wait_before_start
from infra.supervisor.program import Program
from infra.supervisor.state import Life


def test_a_killed_process_is_started_again(fleet, sleeper, kill9):
    fleet.start(sleeper)
    first = fleet.ready("sleeper")
    kill9(first.pid)
    second = fleet.ready("sleeper", other_than=first.pid)
    assert (second.restarts, second.last_exit) == (1, -9)


def test_helpers_of_a_killed_process_do_not_work_beside_its_successor(fleet, script, kill9, tmp_path, eventually, is_gone):
    note = tmp_path / "helper"
    text = (
        f"import os, signal\nhelper = os.fork()\nif helper: open({str(note)!r}, 'a').write(f'{{helper}} '); here()\nsignal.pause()"
    )
    fleet.start(script("parent", text))
    parent = fleet.here("parent")
    helper = int(note.read_text().split()[0])
    assert not is_gone(helper)
    kill9(parent.pid)
    fleet.here("parent", other_than=parent.pid)
    eventually(lambda: is_gone(helper))


def test_a_process_that_keeps_crashing_harms_no_other(fleet, script, sleeper, eventually):
    fleet.start(script("crasher", "raise SystemExit(1)"), sleeper)
    sleeping = fleet.ready("sleeper")
    eventually(lambda: fleet.process("crasher").restarts >= 4)
    assert fleet.process("sleeper").pid == sleeping.pid
    eventually(lambda: "exit code 1" in fleet.process("crasher").says)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_waits_grow_to_a_bound_and_jitter_takes_at_most_half(deaths, chance):
    longest = wait_before_start(deaths, 0.0)
    assert longest / 2 <= wait_before_start(deaths, chance) <= longest <= LONGEST_WAIT_S
    assert longest <= wait_before_start(deaths + 1, 0.0)
    assert wait_before_start(1, 0.0) == 0.2


def _die(child: Child, started_at: float, died_at: float) -> None:
    child.step(started_at, needs_met=True)
    assert child.life is Life.STARTING
    while child.life is Life.STARTING:
        time.sleep(0.01)
        child.step(died_at, needs_met=True)


def test_a_dead_process_starts_again_when_its_wait_is_over_and_not_before(tmp_path: Path):
    child = Child(Program("short", ("/bin/false",)), tmp_path, {})
    now = 0.0
    for deaths in range(1, 8):
        _die(child, now, now + 1.0)
        assert (child.deaths, child.life) == (deaths, Life.BACKOFF)
        now += 1.0 + wait_before_start(deaths, 1.0) * 0.99
        child.step(now, needs_met=True)
        assert child.life is Life.BACKOFF
        now += wait_before_start(deaths, 0.0)


def test_a_long_life_forgives_earlier_deaths(tmp_path: Path):
    child = Child(Program("short", ("/bin/false",)), tmp_path, {})
    _die(child, 0.0, 1.0)
    _die(child, 100.0, 101.0)
    assert child.deaths == 2
    _die(child, 200.0, 200.0 + FORGIVEN_AFTER_S)
    assert child.deaths == 1


def test_three_refusals_in_a_row_end_everything_with_the_sentence(fleet, script, sleeper, tmp_path):
    note = tmp_path / "starts"
    text = (
        f"import sys\nopen({str(note)!r}, 'a').write('x')\nprint('{{\"message\": \"no\"}}')\n"
        "print('stage: the sea is dry; add water', file=sys.stderr)\nsys.exit(2)"
    )
    code, said = fleet.ended(fleet.start(sleeper, script("stage", text)))
    assert (code, said) == (2, "stage: the sea is dry; add water")
    assert note.read_text() == "xxx"
    assert fleet.left() == []
    assert fleet.process("stage").life is Life.FAILED
    assert fleet.process("sleeper").life is Life.STOPPED


def test_refusals_count_only_in_a_row(tmp_path: Path):
    for codes, life in (((2, 2, 1, 2, 2), Life.BACKOFF), ((1, 2, 2, 2), Life.FAILED)):
        child = Child(Program("stage", ("/bin/sh", "-c", f'read c < {tmp_path}/code; exit "$c"')), tmp_path, {})
        for turn, code in enumerate(codes):
            (tmp_path / "code").write_text(f"{code}\n")
            _die(child, turn * 10.0, turn * 10.0 + 1.0)
        assert child.life is life


SERVES = """
import http.server, os, sys
if os.path.exists({broken!r}):
    print("stage: the sea is dry")
    sys.exit(2)
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", {port}), Answers).serve_forever()
"""


def test_what_worked_before_and_now_refuses_to_start_ends_nobody_else(
    fleet, script, sleeper, kill9, tmp_path, free_port, eventually
):
    """A setting that was broken while everything ran lies in wait for the next restart."""
    broken = tmp_path / "broken"
    text = SERVES.format(broken=str(broken), port=free_port)
    fleet.start(sleeper, script("stage", text, port=free_port))
    stage, sleeping = fleet.ready("stage"), fleet.ready("sleeper")
    broken.touch()
    kill9(stage.pid)
    eventually(lambda: fleet.process("stage").restarts >= 4)
    eventually(lambda: fleet.process("stage").says == "stage: the sea is dry")
    assert fleet.process("sleeper").pid == sleeping.pid
    broken.unlink()
    fleet.ready("stage", other_than=stage.pid)


def test_a_program_that_is_not_there_gets_a_sentence(fleet):
    code, said = fleet.ended(fleet.start({"name": "ghost", "command": ["/no/such/program"]}))
    assert code == 2
    assert said == "ghost cannot be started: No such file or directory"


def test_whoever_never_works_ends_a_plan_without_patience(fleet, script):
    crasher = script("crasher", "print('out of hay'); raise SystemExit(3)")
    code, said = fleet.ended(fleet.start(crasher, patience=3))
    assert code == 1
    assert "crasher died 3 times soon after its start (ended with exit code 3: out of hay)" in said


def test_ready_means_that_health_answers_200(fleet, sleeper, free_port, tmp_path, eventually):
    served = tmp_path / "served"
    served.mkdir()
    web = [sys.executable, "-m", "http.server", str(free_port), "--bind", "127.0.0.1", "--directory", str(served)]
    fleet.start({"name": "web", "command": web, "port": free_port}, {**sleeper, "needs": ["web"]})
    eventually(lambda: (web := fleet.process("web")) and "404" in web.says)
    assert (fleet.process("web").life, fleet.process("sleeper").life) == (Life.STARTING, Life.WAITING)
    (served / "health").write_text("well")
    assert fleet.ready("web").since <= fleet.ready("sleeper").since
