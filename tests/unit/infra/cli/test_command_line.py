"""The command answers quickly and in sentences."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from contracts.topics import TURNS
from infra.cli.doctor import _read_lags
from infra.db.engine import open_db, writing
from infra.db.tables.stream import OffsetRow
from infra.eventlog.open import open_log
from infra.eventlog.port import Entry, Partition
from infra.settings import Settings
from infra.supervisor.state import read_state, write_state
from tests.integration.ports import free_port

STAGES = ("ingest", "rewarding", "learner", "registry", "serving", "harness")


def _slipstream(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infra.cli", *arguments]
    environment = {**os.environ, "COLUMNS": "200", **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


def _core_s(run: Callable[[], object]) -> float:
    """Of the quickest of three, in seconds of a core, so that a busy machine does not count."""
    took = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took)


def test_help_is_quick_and_names_every_command():
    """Beside what the libraries that write it take to load, so that a slow machine does not fail it."""
    done = _slipstream("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("up", "demo", "status", "doctor", "down"))
    libraries = _core_s(lambda: subprocess.run([sys.executable, "-c", "import typer.rich_utils"], check=True))
    assert _core_s(lambda: _slipstream("--help")) < 3 * libraries


def test_the_command_imports_no_stage_and_nothing_heavy_for_help():
    text = f"""
import sys
import infra.cli.main
light = set(sys.modules)
import infra.cli.up, infra.cli.demo, infra.cli.status, infra.cli.doctor, infra.cli.down
print([name for name in sys.modules if name.split('.')[0] in {STAGES!r} + ('torch', 'mlflow', 'celery')])
print([name for name in ('pydantic', 'psutil', 'yaml', 'asyncio', 'sqlalchemy') if name in light])
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.stdout == "[]\n[]\n", done.stderr


@pytest.mark.parametrize("command", ["up", "demo"])
def test_a_home_that_cannot_be_gets_one_sentence(tmp_path, command):
    (tmp_path / "file").write_text("")
    done = _slipstream(command, "--home", str(tmp_path / "file" / "home"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"slipstream: .* cannot be made: a part of this path is a file; .* --home .*\n", done.stderr)


def test_debug_shows_the_trace_wherever_it_stands(tmp_path):
    (tmp_path / "file").write_text("")
    for arguments in (("--debug", "up"), ("up", "--debug")):
        done = _slipstream(*arguments, "--home", str(tmp_path / "file" / "home"))
        assert done.returncode == 1
        assert "Traceback" in done.stderr


def test_a_setting_that_makes_no_sense_is_named(tmp_path):
    done = _slipstream("up", "--home", str(tmp_path), "--port-base", "80")
    assert (done.returncode, done.stderr) == (
        2, "slipstream: SLIPSTREAM_PORT_BASE: Input should be greater than or equal to 1024\n"
    )  # fmt: skip


def test_a_policy_that_is_not_there_is_answered_with_those_that_are(tmp_path):
    done = _slipstream("up", "--home", str(tmp_path), "--only", "tabb")
    assert done.returncode == 2
    assert re.fullmatch(r"slipstream: no policy is called 'tabb' in \S+; there are: .*tab.*\n", done.stderr)


def test_where_nothing_runs_status_and_down_say_so_and_make_nothing(tmp_path):
    home = tmp_path / "home"
    status, machine, down = (_slipstream(*words, "--home", str(home)) for words in (("status",), ("status", "--json"), ("down",)))
    assert (status.returncode, status.stdout) == (1, f"Nothing runs in {home}.\n")
    assert (machine.returncode, json.loads(machine.stdout)) == (1, {"running": False, "state": None, "put_aside": {}})
    assert (down.returncode, down.stdout) == (0, f"Nothing ran in {home}.\n")
    assert not home.exists()


def test_status_counts_what_the_log_would_never_take(tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "outcomes.refused").write_bytes(b"one\ntwo\n")
    said, machine = (_slipstream("status", *flag, "--home", str(tmp_path)) for flag in ((), ("--json",)))
    assert "2 outcomes that the log would never take are put aside in the spool" in said.stdout
    assert json.loads(machine.stdout)["put_aside"] == {"outcomes": 2}


def test_status_and_down_see_what_runs(fleet, sleeper, is_gone):
    fleet.start(sleeper, {**sleeper, "name": "other"}, addresses={"gateway": "http://127.0.0.1:1/v1"})
    pids = [fleet.ready(name).pid for name in ("sleeper", "other")]
    shown = _slipstream("status", "--home", str(fleet.home))
    assert shown.returncode == 0
    assert re.search(rf"sleeper +ready +{pids[0]} ", shown.stdout)
    assert "gateway  http://127.0.0.1:1/v1" in shown.stdout
    machine = json.loads(_slipstream("status", "--json", "--home", str(fleet.home)).stdout)
    assert machine["running"] and [process["name"] for process in machine["state"]["processes"]] == ["sleeper", "other"]
    down = _slipstream("down", "--home", str(fleet.home))
    assert (down.returncode, down.stdout) == (0, f"Stopped sleeper, other, supervisor ({fleet.started[0].pid}).\n")
    assert all(is_gone(pid) for pid in pids)
    assert fleet.started[0].wait() == 0


def test_down_from_the_parent_folder_stops_a_demo_too(fleet, sleeper):
    """`slipstream demo` keeps its state in `<home>/demo`."""
    outer = fleet.home
    fleet.home = outer / "demo"
    fleet.start(sleeper)
    fleet.ready("sleeper")
    assert "sleeper" in _slipstream("status", "--home", str(outer)).stdout
    assert _slipstream("down", "--home", str(outer)).stdout.startswith("Stopped sleeper, supervisor")
    assert fleet.started[0].wait() == 0


def test_down_ends_what_outlived_its_supervisor_and_status_tells_of_it(fleet, script, is_gone, eventually):
    supervisor = fleet.start(script("parent", "import signal\nif os.fork() == 0: os.setsid()\nelse: here()\nsignal.pause()"))
    fleet.here("parent")
    supervisor.kill()
    supervisor.wait()
    eventually(lambda: fleet.left() == ["helper"])
    said = _slipstream("status", "--home", str(fleet.home))
    assert said.returncode == 1
    assert "is gone, but these still run: helper (" in said.stdout
    assert re.fullmatch(r"Stopped helper \(\d+\)\.\n", _slipstream("down", "--home", str(fleet.home)).stdout)
    assert fleet.left() == []


def test_up_on_a_home_that_is_taken_says_by_whom(fleet, sleeper):
    supervisor = fleet.start(sleeper)
    fleet.ready("sleeper")
    done = _slipstream("up", "--home", str(fleet.home))
    assert done.returncode == 2
    assert f"runs already in {fleet.home} (process {supervisor.pid}); stop it with `slipstream down" in done.stderr


def test_doctor_tells_problem_and_mend_and_counts_them(tmp_path):
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "tab.yaml").write_text("name: [")
    port_base = free_port(in_a_row=4)
    words = ("doctor", "--home", str(tmp_path / "home"), "--port-base", str(port_base))
    done = _slipstream(*words, SLIPSTREAM_POLICIES=str(folder))
    assert done.returncode == 1
    assert re.search(r"ok +home +\S+ can be written", done.stdout)
    assert re.search(r"problem +policies +\S+tab.yaml: not YAML", done.stdout)
    assert "2 problems." in done.stdout  # the base weights are in the policy that cannot be read
    assert f"port {port_base}" in done.stdout


def test_doctor_goes_on_where_the_database_is_damaged(tmp_path):
    for name in ("slipstream.db", "log.db"):
        (tmp_path / name).write_bytes(b"no database, " * 1000)
    done = _slipstream("doctor", "--home", str(tmp_path))
    assert done.returncode == 1
    assert "event log and database" in done.stdout and "damaged" in " ".join(done.stdout.split())
    assert re.search(r"ok +home", done.stdout)


def test_a_demo_that_cannot_start_leaves_an_earlier_one_as_it_is(tmp_path):
    earlier = tmp_path / "demo"
    earlier.mkdir()
    (earlier / "choice.txt").write_text("tiny --seed 9")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = _slipstream("demo", "--no-page", "--home", str(tmp_path), "--port-base", str(taken.getsockname()[1]))
    assert done.returncode == 2 and "is taken by" in done.stderr, done
    assert (earlier / "choice.txt").read_text() == "tiny --seed 9"


def test_a_command_that_would_work_on_another_store_than_what_runs_is_refused(fleet, sleeper):
    stores = {"SLIPSTREAM_LOG_URL": "kafka://broker:9092", "SLIPSTREAM_DB_URL": "postgresql://db/slipstream"}
    fleet.start(sleeper, stores=stores)
    fleet.ready("sleeper")
    for words in (("keys", "create", "ide", "--scope", "producer"), ("subject", "delete", "ada"), ("doctor",)):
        done = _slipstream(*words, "--home", str(fleet.home))
        assert done.returncode == 2 and "has SLIPSTREAM_LOG_URL=kafka://broker:9092; set it here too" in done.stderr, done
    assert not (fleet.home / "slipstream.db").exists()


def test_status_says_when_the_supervisor_has_gone_silent(fleet, sleeper):
    supervisor = fleet.start(sleeper)
    fleet.ready("sleeper")
    supervisor.send_signal(signal.SIGSTOP)
    try:
        state = read_state(fleet.home)
        assert state is not None
        write_state(state.model_copy(update={"updated": state.updated - 60.0}))
        said = _slipstream("status", "--home", str(fleet.home))
    finally:
        supervisor.send_signal(signal.SIGCONT)
    assert said.returncode == 1
    assert "the supervisor has not written since" in said.stdout


def test_doctor_tells_how_far_behind_a_consumer_is(tmp_path):
    settings = Settings(home=tmp_path)
    log = open_log(settings)
    log.ensure([TURNS])
    log.append("turns", [Entry("k", b"{}")] * 5)
    (place,) = (place for place, end in log.ends("turns").items() if end)
    consumer = log.consumer("joiner", ["turns"])
    while place not in consumer.assignment():
        consumer.poll(0.05)
    consumer.commit({Partition("turns", place.number): 2})
    consumer.close()
    with writing(open_db(settings.database)) as session:
        session.add(OffsetRow(consumer_group="joiner", topic="turns", partition_number=place.number, next_offset=2))
    assert list(_read_lags(settings)) == [("joiner", "turns", 3)]
    log.close()
