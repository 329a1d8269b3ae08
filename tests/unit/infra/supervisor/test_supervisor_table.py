"""The table of processes, the environment they get, and the Redis server that guards its door."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from infra.secrets import load_secrets
from infra.settings import Settings, load_settings
from infra.supervisor import table
from infra.supervisor.child import Child
from infra.supervisor.environment import MARK, child_environment
from infra.supervisor.probe import is_ready
from infra.supervisor.program import AnswersPing


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return Settings(home=tmp_path / 'a "home"', port_base=min(found.getsockname()[1], 65_000))


def test_every_stage_is_there_and_redis_only_where_it_is_ours(settings):
    names = [program.name for program in table.programs(settings)]
    stages = ["collector", "joiner", "retention", "rewarding", "learner-worker", "learner-beat", "registry", "serving", "bench"]
    assert names == ["redis", *stages]
    elsewhere = settings.model_copy(update={"redis_url": "redis://elsewhere:6379/0"})
    assert [program.name for program in table.programs(elsewhere)] == stages
    assert not any(program.needs for program in table.programs(elsewhere))
    assert "redis" not in table.ports(elsewhere)


def test_needs_name_programs_that_come_before(settings):
    programs = table.programs(settings)
    everything = (*programs, table.driver(("--seed", "1"), after=programs))
    seen: set[str] = set()
    for program in everything:
        assert set(program.needs) <= seen
        seen.add(program.name)
    assert everything[-1].command == (sys.executable, "-m", "harness", "demo", "--seed", "1")
    assert everything[-1].foreground


def test_redis_lets_in_only_who_knows_the_password_which_is_on_no_command_line(settings):
    program = table.redis(settings)
    password = load_secrets(settings.home).redis_password
    assert password not in repr(program)
    child = Child(program, settings.home, child_environment(settings))
    child.step(0.0, needs_met=True)
    try:
        deadline = time.monotonic() + 60
        while not asyncio.run(is_ready(program.ready, 0.0)):
            assert time.monotonic() < deadline, child.log.read_text()
        assert not asyncio.run(is_ready(AnswersPing(settings.redis_port, "wrong"), 0.0))
        process = psutil.Process(child.pid)
        assert password not in " ".join(process.cmdline())
        assert process.environ()[MARK] == str(settings.home)
        with socket.create_connection(("127.0.0.1", settings.redis_port)) as stranger:
            stranger.sendall(b"PING\r\n")
            assert stranger.recv(100).startswith(b"-NOAUTH")
    finally:
        child.ask_to_stop(0.0)
        while child.pid is not None:
            child.step(0.0, needs_met=False)
    assert child.last_exit == 0


def test_children_read_the_same_settings_wherever_they_look_from(settings, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies").mkdir()
    relative = settings.model_copy(update={"home": Path("here"), "only": "tab", "threads": 2})
    environment = child_environment(relative)
    with monkeypatch.context() as child:
        for name, value in environment.items():
            child.setenv(name, value)
        child.chdir("/")
        found = load_settings()
    assert found == relative.model_copy(update={"home": tmp_path / "here", "policies": tmp_path / "policies"})
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["PYTHONUNBUFFERED"] == "1"


def test_a_folder_named_like_a_stage_is_not_taken_for_it(settings, tmp_path, monkeypatch):
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    command = [sys.executable, "-c", "import contracts; print(contracts.__doc__ is not None)"]
    done = subprocess.run(command, cwd=tmp_path, env=dict(child_environment(settings)), capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
    assert "the wrong one" in subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ)).stderr


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://slip:hunter2@db:5432/slipstream", "postgresql://db:5432/slipstream"),
        ("postgresql://slip:hunter2%40@[::1]/slipstream", "postgresql://[::1]/slipstream"),
        ("postgresql://db/slipstream?password=hunter2&sslmode=require", "postgresql://db/slipstream"),
        ("postgresql:///slipstream?host=/run/postgresql&user=hunter2", "postgresql:///slipstream?host=%2Frun%2Fpostgresql"),
        ("sqlite:////var/lib/slip/slipstream.db?password=hunter2", "sqlite:////var/lib/slip/slipstream.db"),
        ("garbage:hunter2", None),
        ("slip:hunter2@db/slipstream", None),
        ("mysql://slip:hunter2@db/slipstream", None),
        ("postgresql://slip:p@hunter2@db/slipstream", None),
        ("postgresql://slip:p@hunter2/x@db/slipstream", None),
        ("postgresql://slip:p@hunter2?x@db/slipstream", None),
        ("postgresql://slip:hunter2@db:port/slipstream", None),
    ],
)
def test_where_a_store_lies_is_told_without_what_lets_in(settings, url, shown):
    def told(url: str) -> str:
        return table.stores(settings.model_copy(update={"db_url": url}))["SLIPSTREAM_DB_URL"]

    assert "hunter2" not in told(url)
    if shown is not None:
        assert told(url) == shown
    else:
        assert told(url).startswith("(not shown, digest ") and told(url) == told(url) != told(f"{url}2")


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("kafka://one:9092,two:9092", True),
        ("sqlite:////var/lib/slip/log.db", True),
        ("kafka://slip:hunter2@one:9092", False),
        ("kafka://one:9092?password=hunter2", False),
        ("hunter2", False),
    ],
)
def test_an_address_of_the_log_is_told_as_it_is_or_not_at_all(settings, url, kept):
    told = table.stores(settings.model_copy(update={"log_url": url}))["SLIPSTREAM_LOG_URL"]
    assert told == url if kept else "hunter2" not in told and "digest" in told
