"""However a supervisor ends, nothing of it stays, and the next one goes on."""

from __future__ import annotations

import os
import signal
import socket
import time

import psutil

from infra.supervisor.lock import holder, lock_file
from infra.supervisor.state import Life, read_state, state_file

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); here()\nwhile True: signal.pause()"


def test_sigterm_stops_everything_and_says_so_in_the_state(fleet, sleeper, is_gone):
    supervisor = fleet.start(sleeper, {**sleeper, "name": "other"})
    pids = [fleet.ready("sleeper").pid, fleet.ready("other").pid]
    supervisor.terminate()
    assert fleet.ended(supervisor) == (0, "")
    assert all(is_gone(pid) for pid in pids)
    state = fleet.state()
    assert {process.life for process in state.processes} == {Life.STOPPED}
    assert state.ending == "stopped as asked"
    assert holder(fleet.home) is None


def test_needs_stop_after_those_that_need_them(fleet, script, tmp_path):
    note = tmp_path / "order"
    text = (
        "import signal, sys, time\ndef bye(*_):\n    time.sleep(0.1)\n"
        f"    open({str(note)!r}, 'a').write('NAME ')\n    sys.exit()\nsignal.signal(signal.SIGTERM, bye)\nhere()\nsignal.pause()"
    )
    queue = script("queue", text.replace("NAME", "queue"))
    worker = script("worker", text.replace("NAME", "worker"), needs=["queue"])
    driver = script("driver", text.replace("NAME", "driver"), needs=["queue", "worker"])
    supervisor = fleet.start(queue, worker, driver)
    for name in ("queue", "worker", "driver"):
        fleet.here(name)
    supervisor.terminate()
    fleet.ended(supervisor)
    assert note.read_text().split() == ["driver", "worker", "queue"]


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(fleet, script):
    supervisor = fleet.start(script("stubborn", STUBBORN, grace_s=0.3))
    fleet.here("stubborn")
    started = time.monotonic()
    supervisor.terminate()
    assert fleet.ended(supervisor) == (0, "")
    assert time.monotonic() - started >= 0.3
    assert fleet.process("stubborn").last_exit == -9


def test_the_second_ctrl_c_does_not_wait(fleet, script, eventually):
    supervisor = fleet.start(script("stubborn", STUBBORN, grace_s=60.0))
    fleet.here("stubborn")
    supervisor.send_signal(signal.SIGINT)
    eventually(lambda: fleet.process("stubborn").life is Life.STOPPING)
    supervisor.send_signal(signal.SIGINT)
    assert fleet.ended(supervisor, within_s=40.0) == (130, "")


def test_a_process_that_waits_for_its_next_start_does_not_start_while_all_stops(fleet, script, tmp_path, eventually):
    note = tmp_path / "starts"
    crasher = script("crasher", f"open({str(note)!r}, 'a').write('x'); raise SystemExit(1)")
    supervisor = fleet.start(crasher, script("stubborn", STUBBORN, grace_s=1.0))
    fleet.here("stubborn")
    eventually(lambda: fleet.process("crasher").life is Life.BACKOFF and fleet.process("crasher").restarts >= 2)
    supervisor.terminate()
    eventually(lambda: fleet.process("stubborn").life is not Life.READY)
    starts = note.read_text()
    fleet.ended(supervisor)
    assert note.read_text() == starts


def test_children_die_with_a_killed_supervisor_and_the_next_start_ends_their_helpers(fleet, script, sleeper, eventually, is_gone):
    fork = "import signal\nif os.fork() == 0: os.setsid()\nelse: here()\nsignal.pause()"
    supervisor = fleet.start(script("parent", fork), sleeper)
    pids = [fleet.here("parent").pid, fleet.ready("sleeper").pid]
    (helper,) = (process.pid for process in psutil.Process(pids[0]).children())
    supervisor.kill()
    supervisor.wait()
    eventually(lambda: all(is_gone(pid) for pid in pids))
    assert not is_gone(helper)
    fleet.start(sleeper)
    fleet.ready("sleeper")
    assert is_gone(helper)


def test_a_recorded_process_without_our_mark_is_ended_too_but_a_reused_pid_is_not(fleet, sleeper, is_gone):
    """As where children cannot be tied to their parent: one that still runs is recorded, and a pid that went to another."""
    supervisor = fleet.start(sleeper)
    fleet.ready("sleeper")
    supervisor.terminate()
    fleet.ended(supervisor)
    command = sleeper["command"]
    orphan, stranger = (psutil.Popen(command, start_new_session=True) for _ in range(2))
    try:
        state = fleet.state()
        (slot,) = state.processes
        left = slot.model_copy(update={"pid": orphan.pid, "create_time": orphan.create_time(), "life": Life.READY})
        reused = slot.model_copy(update={"pid": stranger.pid, "create_time": stranger.create_time() - 100, "name": "reused"})
        state_file(fleet.home).write_bytes(state.model_copy(update={"processes": (left, reused)}).encode())
        fleet.start(sleeper)
        fleet.ready("sleeper")
        assert is_gone(orphan.pid)
        assert not is_gone(stranger.pid)
    finally:
        for process in (orphan, stranger):
            process.kill()
            process.wait()


def test_a_second_supervisor_on_the_same_home_is_refused_with_pid_and_folder(fleet, sleeper):
    first = fleet.start(sleeper)
    kept = fleet.ready("sleeper")
    code, said = fleet.ended(fleet.start(sleeper))
    assert code == 2
    assert f"runs already in {fleet.home} (process {first.pid})" in said
    fleet.started.pop()
    assert fleet.process("sleeper").pid == kept.pid


def test_the_lock_file_of_a_dead_process_is_no_obstacle(fleet, sleeper, eventually):
    supervisor = fleet.start(sleeper)
    fleet.ready("sleeper")
    assert holder(fleet.home) == supervisor.pid
    supervisor.kill()
    supervisor.wait()
    assert lock_file(fleet.home).read_text() == str(supervisor.pid)
    assert eventually(lambda: holder(fleet.home) is None)
    fleet.start(sleeper)
    fleet.ready("sleeper")


def test_readers_always_find_a_whole_state_file_with_the_processes_in_it(fleet, sleeper):
    supervisor = fleet.start(sleeper, ports={}, addresses={"gateway": "http://127.0.0.1:1/v1"})
    ready = fleet.ready("sleeper")
    assert abs(psutil.Process(ready.pid).create_time() - ready.create_time) < 0.5
    seen = set()
    started = time.monotonic()
    while len(seen) < 2 or time.monotonic() - started < 1.3:
        assert time.monotonic() - started < 40, "nothing is written any more"
        state = read_state(fleet.home)
        assert state is not None and state.pid == supervisor.pid
        seen.add(state.updated)
    state = fleet.state()
    assert state.memory_measure == "pss"
    assert state.processes[0].memory_mb > 0.5
    assert state.peak_rss_mb >= state.memory_mb > 5.0
    assert state.addresses == {"gateway": "http://127.0.0.1:1/v1"}


def test_a_foreground_program_ends_everything_with_its_exit_code(fleet, script, sleeper):
    driver = script("driver", "raise SystemExit(7)", foreground=True, needs=["sleeper"])
    assert fleet.ended(fleet.start(sleeper, driver)) == (7, "")
    assert fleet.left() == []


def test_a_killed_foreground_program_is_started_again(fleet, script, sleeper, kill9, tmp_path):
    note = tmp_path / "starts"
    text = (
        f"import os, signal, sys\nopen({str(note)!r}, 'a').write('x')\n"
        f"if os.path.getsize({str(note)!r}) == 2: sys.exit(0)\nhere()\nsignal.pause()"
    )
    supervisor = fleet.start(sleeper, script("driver", text, foreground=True))
    kill9(fleet.here("driver").pid)
    assert fleet.ended(supervisor) == (0, "")
    assert note.read_text() == "xx"


def test_ctrl_c_reaches_the_foreground_program_and_ends_with_130(fleet, script, sleeper):
    supervisor = fleet.start(sleeper, script("driver", "import signal; signal.pause()", foreground=True))
    driver = fleet.ready("driver")
    os.kill(driver.pid, signal.SIGINT)
    supervisor.send_signal(signal.SIGINT)
    code, _ = fleet.ended(supervisor)
    assert code == 130
    assert fleet.process("driver").restarts == 0


def test_logs_are_appended_to_and_rotated_when_large(fleet, script, eventually):
    talker = script("talker", 'print(\'{"message": "here I am"}\', flush=True); here(); import signal; signal.pause()')
    log = fleet.home / "logs" / "talker.log"
    for _ in range(2):
        supervisor = fleet.start(talker)
        fleet.here("talker")
        supervisor.terminate()
        fleet.ended(supervisor)
    assert log.read_text().count("here I am") == 2
    log.write_bytes(b"x" * 10_000_001)
    supervisor = fleet.start(talker)
    fleet.here("talker")
    eventually(lambda: fleet.process("talker").says == "here I am")
    supervisor.terminate()
    fleet.ended(supervisor)
    assert log.read_text().count("here I am") == 1
    assert log.with_name("talker.log.1").stat().st_size == 10_000_001
    assert fleet.process("talker").says == "here I am"


def test_a_busy_port_is_told_with_who_has_it(fleet, sleeper, free_port):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port))
        taken.listen()
        code, said = fleet.ended(fleet.start(sleeper, ports={"gateway": free_port}))
    assert code == 2
    assert f"port {free_port} on 127.0.0.1, which the gateway needs, is taken by process {os.getpid()} (" in said
    assert said.endswith("stop that program or move Slipstream with --port-base (SLIPSTREAM_PORT_BASE)")
