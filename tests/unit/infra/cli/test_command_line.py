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
from typer.testing import CliRunner

from contracts.topics import TURNS
from infra.cli.doctor import _read_lags
from infra.cli.main import app
from infra.cli.variables import known, unknown
from infra.db.engine import open_db, writing
from infra.db.tables.stream import OffsetRow
from infra.eventlog.access import KafkaAccess
from infra.eventlog.open import open_log
from infra.eventlog.port import Entry, Partition
from infra.secrets import KEYS, PASSWORD, REGISTER
from infra.settings import Settings
from infra.supervisor.environment import MARK
from infra.supervisor.state import read_state, write_state
from ingest.config import IngestConfig
from ingest.retain.config import RetainConfig
from learner.config import LearnerConfig
from registry.config import RegistryConfig
from rewarding.config import RewardingConfig
from serving.config import ServingConfig
from tests.integration.ports import free_port

STAGES = ("ingest", "rewarding", "learner", "registry", "serving", "harness")
ONLY_FOR_TESTS = {"SLIPSTREAM_KAFKA", "SLIPSTREAM_POSTGRES", "SLIPSTREAM_DATA"}


def _slipstream(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infra.cli", *arguments]
    here = {name: value for name, value in os.environ.items() if name not in ONLY_FOR_TESTS}
    environment = {**here, "COLUMNS": "200", **variables}
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
    for store in ("event log", "database"):
        assert re.search(rf"problem +{store} +.*damaged", done.stdout), done.stdout
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


@pytest.mark.parametrize(
    ("variables", "problems"),
    [
        ({"SLIPSTREAM_LOG_URL": "kafka://127.0.0.1:9"}, {"event log": "SLIPSTREAM_LOG_URL"}),
        ({"SLIPSTREAM_DB_URL": "postgresql://127.0.0.1:9/slipstream"}, {"database": "SLIPSTREAM_DB_URL"}),
        ({"SLIPSTREAM_DB_URL": "postgresql://127.0.0.1:nine/slipstream"}, {"database": "SLIPSTREAM_DB_URL"}),
        (
            {"SLIPSTREAM_LOG_URL": "kafka://127.0.0.1:9", "SLIPSTREAM_DB_URL": "postgresql://127.0.0.1:9/slipstream"},
            {"event log": "SLIPSTREAM_LOG_URL", "database": "SLIPSTREAM_DB_URL"},
        ),
    ],
)
def test_doctor_tries_each_store_by_itself_and_makes_none(tmp_path, variables, problems):
    done = _slipstream("doctor", "--home", str(tmp_path), **variables)
    assert done.returncode == 1, done.stdout
    for store in ("event log", "database"):
        if store in problems:
            assert re.search(rf"problem +{store} +\S.*{problems[store]} is right", done.stdout), done.stdout
        else:
            assert re.search(rf"ok +{store} +sqlite:///.* is not made yet", done.stdout), done.stdout
    assert not list(tmp_path.glob("*.db"))


def test_doctor_names_variables_that_nobody_reads(tmp_path):
    done = _slipstream("doctor", "--home", str(tmp_path), SLIPSTREAM_INGEST_SPOOLMB="secret", SLIPSTREAM_KEY="sk_1")
    assert done.returncode == 1 and "secret" not in done.stdout
    assert re.search(
        r"problem +variable +no setting is called SLIPSTREAM_INGEST_SPOOLMB +did you mean SLIPSTREAM_INGEST_SPOOL_MB\?", done.stdout
    )
    assert "SLIPSTREAM_KEY" not in done.stdout


def test_the_variables_that_are_known_are_those_of_all_settings():
    read = {KEYS, REGISTER, PASSWORD, MARK, "SLIPSTREAM_KEY"}
    kinds = (Settings, KafkaAccess, IngestConfig, RetainConfig, RewardingConfig, LearnerConfig, RegistryConfig, ServingConfig)
    for kind in kinds:
        read |= {f"{kind.model_config['env_prefix']}{name}".upper() for name in kind.model_fields}
    assert known() == read
    assert unknown(["slipstream_home", "PATH", "SLIPSTREAM_HOMES", "SLIPSTREAM_BLA"]) == {
        "SLIPSTREAM_HOMES": "SLIPSTREAM_HOME",
        "SLIPSTREAM_BLA": None,
    }


@pytest.mark.parametrize(
    "words",
    [
        *(("subject", what, "bob") for what in ("delete", "export")),
        ("subject", "rotate-key"),
        ("keys", "list"),
        ("keys", "revoke", "0123456789ab"),
        ("dlq", "list"),
        ("dlq", "list", "turns"),
        ("dlq", "show", "turns", "0", "0"),
        ("dlq", "retry", "--all"),
    ],
)
def test_where_nothing_ever_ran_looking_says_so_and_makes_nothing(tmp_path, monkeypatch, words):
    home = tmp_path / "typo"
    monkeypatch.setenv("SLIPSTREAM_HOME", "set and put back by the test")
    done = CliRunner().invoke(app, [*words, "--home", str(home)])
    said = f"slipstream: nothing has ever run in {home}; name the folder of the deployment with --home\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", said)
    assert not home.exists()


def test_where_only_a_demo_ran_its_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIPSTREAM_HOME", "set and put back by the test")
    open_db(f"sqlite:///{tmp_path / 'demo' / 'slipstream.db'}").dispose()
    done = CliRunner().invoke(app, ["keys", "list", "--home", str(tmp_path)])
    assert done.exit_code == 2 and done.stderr.endswith(f"with --home, for example {tmp_path / 'demo'}\n")


def test_names_are_never_hashed_with_keys_made_on_the_spot(tmp_path, monkeypatch):
    """The database is elsewhere, so that only the keys tell a mistyped home."""
    monkeypatch.setenv("SLIPSTREAM_HOME", "set and put back by the test")
    monkeypatch.setenv("SLIPSTREAM_DB_URL", f"sqlite:///{tmp_path / 'elsewhere.db'}")
    open_db(f"sqlite:///{tmp_path / 'elsewhere.db'}").dispose()
    done = CliRunner().invoke(app, ["subject", "delete", "bob", "--home", str(tmp_path / "typo")])
    assert done.exit_code == 2 and "nothing has ever run in" in done.stderr and not (tmp_path / "typo").exists()


def test_before_the_first_up_keys_are_made_and_wishes_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIPSTREAM_HOME", "set and put back by the test")
    for number, words in enumerate((("keys", "create", "ide", "--scope", "producer"), ("subject", "opt-out", "bob"))):
        done = CliRunner().invoke(app, [*words, "--home", str(tmp_path / str(number))])
        assert done.exit_code == 0, done.stderr


@pytest.mark.integration  # it starts the whole service
def test_what_a_detached_up_waits_for_is_said(tmp_path):
    """A Kafka that is not there keeps it from ever being ready."""
    command = [sys.executable, "-m", "infra.cli", "up", "--detach", "--home", str(tmp_path)]
    environment = {**os.environ, "SLIPSTREAM_LOG_URL": "kafka://127.0.0.1:9", "SLIPSTREAM_PORT_BASE": str(free_port(in_a_row=4))}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as up:
        assert up.stderr is not None
        try:
            said = up.stderr.readline()
        finally:
            up.terminate()
            _slipstream("down", "--home", str(tmp_path))
    assert re.match(r"slipstream: waiting for \w+, \w+", said), said
