"""The Python SDK towards the program it is in: it costs little, raises nothing, survives forks, and lets go at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from slipstream_events import Client, Limits
from tests.unit.ingest.sdk_server import Answer, Collector, all_taken, serving

ROOT = Path(__file__).resolve().parents[3]
SDK = ROOT / "ingest/sdk/python"
NAMES = ("slipstream_events", "slipstream_rl")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with serving(Collector()) as collector:
        yield collector


def run(body: str, url: str, folder: Path, exit_s: float = 60.0) -> tuple[float, str]:
    """A program of its own, and how long it took from its `begin` to its end."""
    prelude = "import multiprocessing, os, sys, time\nfrom slipstream_events import Client, Limits\n"
    prelude += "client = Client(os.environ['URL'], 'tab', spool=os.environ['FOLDER'], limits=Limits(exit_s=EXIT_S))\n"
    body = prelude.replace("EXIT_S", str(exit_s)) + body + "\nprint(time.time(), flush=True)\n"
    environment = {**os.environ, "PYTHONPATH": str(SDK), "URL": url, "FOLDER": str(folder)}
    done = subprocess.run([sys.executable, "-c", body], env=environment, capture_output=True, text=True, timeout=100, check=True)
    return time.time() - float(done.stdout.split()[-1]), done.stderr


def spooled(folder: Path) -> int:
    return sum(len(file.read_bytes().splitlines()) for file in folder.rglob("*") if file.is_file())


def test_telling_costs_the_host_less_than_50_microseconds(collector, tmp_path):
    with Client(collector.url, "tab", spool=tmp_path, limits=Limits(queue_events=100_000)) as client:
        client.shown("ep-1.1-0")
        assert client.flush()
        count = 3000
        began = time.thread_time()
        for _ in range(count):
            client.accepted("ep-1.1-0", characters=42)
        cost_us = (time.thread_time() - began) / count * 1e6
        assert client.flush(60) and len(collector.ids) == count + 1
    assert cost_us < 50, f"{cost_us:.1f} µs of this thread's time per event"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda client: client.accepted("ep-1.1-0"), "bad_call"),
        (lambda client: client.accepted("ep-1.1-0", characters=1, colour="red"), "bad_call"),
        (lambda client: client.edited("ep-1.1-0", surviving=float("nan")), "not_json"),
        (lambda client: client.tell("shown", "ep-1.1-0", {"file": Path("x")}), "not_json"),
        (lambda client: client.shown("ep-1.1-0", at=datetime(2026, 1, 1)), "naive_time"),
        (lambda client: client.shown("ep-1.1-0", at="yesterday"), "bad_call"),
        (lambda client: client.shown(17), "bad_call"),
        (lambda client: client.follow_up("ep-1.1-0", text="x" * 70_000), "too_large"),
    ],
)
def test_no_call_raises_and_each_is_counted(collector, tmp_path, call, reason):
    with Client(collector.url, "tab", spool=tmp_path) as client:
        assert call(client) is None
        assert client.stats.dropped == {reason: 1} and client.stats.told == 1


def test_a_client_that_was_closed_counts_what_comes_later(tmp_path):
    client = Client("http://127.0.0.1:9", "tab", spool=tmp_path)
    assert client.close() and client.close()
    assert client.shown("ep-1.1-0") is None and client.stats.dropped == {"closed": 1}


@pytest.mark.parametrize("url", ["", "localhost:8601", "ftp://x", "http://"])
def test_an_address_that_makes_no_sense_is_said_when_the_client_is_made(url):
    with pytest.raises(ValueError, match="url"):
        Client(url, "tab", spool=False)
    with pytest.raises(ValueError, match="batch_events"):
        Limits(batch_events=0)


def test_a_collector_that_hangs_never_holds_up_the_host(collector, tmp_path):
    collector.answers = lambda events: Answer(202, all_taken(events).body, after_s=10.0)
    limits = Limits(batch_events=10, linger_s=0.0, queue_events=50, exit_s=0.1)
    with Client(collector.url, "tab", spool=tmp_path, limits=limits) as client:
        began = time.monotonic()
        for _ in range(500):
            client.shown("ep-1.1-0")
        assert time.monotonic() - began < 5.0
        stats = client.stats
        assert stats.queued == 50 and stats.dropped == {"queue_full": 450}
        began = time.monotonic()
    assert time.monotonic() - began < 5.0 and spooled(tmp_path) == 50


def test_a_signal_handler_may_tell_while_the_program_tells(collector, tmp_path):
    with Client(collector.url, "tab", spool=tmp_path, limits=Limits(queue_events=100_000)) as client:
        before = signal.signal(signal.SIGALRM, lambda *_: client.dismissed("ep-1.1-0"))
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        try:
            for _ in range(2000):
                client.shown("ep-1.1-0")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert client.flush(60)
    assert len(collector.ids) == len(set(collector.ids)) > 2000 and client.stats.queued == 0


def test_what_many_threads_tell_arrives_once(collector, tmp_path):
    with Client(collector.url, "tab", spool=tmp_path) as client:
        tellers = [threading.Thread(target=lambda: [client.shown("ep-1.1-0") for _ in range(200)]) for _ in range(8)]
        for teller in tellers:
            teller.start()
        for teller in tellers:
            teller.join()
        assert client.flush(60)
        assert client.stats.told == client.stats.taken == len(set(collector.ids)) == len(collector.ids) == 1600


def test_the_end_of_the_program_sends_what_is_left(collector, tmp_path):
    run("for _ in range(250): client.shown('ep-1.1-0')", collector.url, tmp_path)
    assert len(set(collector.ids)) == len(collector.ids) == 250 and spooled(tmp_path) == 0


def test_the_end_of_the_program_is_not_held_up_by_a_collector_that_hangs(collector, tmp_path):
    collector.answers = lambda events: Answer(202, all_taken(events).body, after_s=10.0)
    others = "others = [Client(os.environ['URL'], 'tab', spool=os.environ['FOLDER']) for _ in range(5)]\n"
    body = others + "for one in [client, *others]:\n    for _ in range(50): one.shown('ep-1.1-0')"
    took_s, errors = run(body, collector.url, tmp_path, exit_s=0.5)
    assert took_s < 8.0 and spooled(tmp_path) == 300 and errors == ""


def test_an_unhandled_exception_of_the_host_loses_nothing(collector, tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        run("client.shown('ep-1.1-0')\nraise SystemError", collector.url, tmp_path)
    assert len(collector.ids) == 1


def test_a_forked_child_tells_its_own_and_leaves_its_parents_alone(collector, tmp_path):
    body = """
for _ in range(20): client.shown('ep-parent.1-0')
client.flush()
for _ in range(20): client.shown('ep-parent.1-0')
if os.fork() == 0:
    for _ in range(20): client.shown('ep-child.1-0')
    client.close()
    os._exit(client.stats.told != 20)
assert os.wait()[1] == 0
"""
    run(body, collector.url, tmp_path)
    turns = [event["turnid"] for event in collector.events]
    assert (turns.count("ep-parent.1-0"), turns.count("ep-child.1-0")) == (40, 20) and len(set(collector.ids)) == 60


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_of_multiprocessing_sends_what_is_left_when_it_ends(collector, tmp_path, method):
    script = tmp_path / "program.py"
    script.write_text(
        f"""
import multiprocessing, os
from slipstream_events import Client, Limits
client = Client({collector.url!r}, "tab", spool={str(tmp_path / "spool")!r}, limits=Limits(exit_s=60.0))
def work():
    for _ in range(30): client.shown("ep-child.1-0")
if __name__ == "__main__":
    client.shown("ep-parent.1-0")
    worker = multiprocessing.get_context({method!r}).Process(target=work)
    worker.start()
    worker.join()
"""
    )
    subprocess.run([sys.executable, script], env={**os.environ, "PYTHONPATH": str(SDK)}, timeout=100, check=True)
    assert len(collector.ids) == len(set(collector.ids)) == 31


def test_the_package_is_light_and_knows_nothing_of_the_service():
    project = tomllib.loads((SDK / "pyproject.toml").read_text())["project"]
    assert {name.split(">")[0] for name in project["dependencies"]} == {"httpx", "platformdirs"}
    heavy = ["torch", "pydantic", "fastapi", "sqlalchemy", "contracts", "infra", "ingest"]
    body = f"import sys, slipstream_events\nsys.exit(bool(set({heavy!r}) & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", body], cwd=SDK, timeout=100, check=True)


def test_the_wheel_holds_the_sdk_and_that_of_the_service_does_not(tmp_path):
    for source in (SDK, ROOT):
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, source],
            capture_output=True,
            timeout=100,
            check=True,
        )

    own, service = (
        zipfile.ZipFile(next(tmp_path.glob(f"{name}-*.whl"))).namelist() for name in ("slipstream_events", "slipstream_rl")
    )
    assert "slipstream_events/client.py" in own and "slipstream_events/py.typed" in own
    assert "ingest/collect/app.py" in service and not [name for name in service if "sdk" in name]
