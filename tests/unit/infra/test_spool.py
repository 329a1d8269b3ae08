"""The spool: what was added leaves in order, once the log takes it, whatever was killed; it never outgrows its limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import infra.spool
from contracts.errors import Poison, Retry
from infra.eventlog.port import Entry
from infra.spool import Spool, SpoolFull
from tests.conftest import REPOSITORY

KILLED = """
import os, signal, sys
from pathlib import Path
from infra.eventlog.port import Entry
from infra.spool import Spool
spool = Spool(Path(sys.argv[1]), "boot-7", "turns")
for number in range(5):
    spool.add([Entry("ep", b'{"n": %d}' % number)])
print(5, flush=True)
spool._writing.stream.write(b'ep\\t{"n": 5, "cut')
os.kill(os.getpid(), signal.SIGKILL)
"""


def numbered(*numbers: int) -> list[Entry]:
    return [Entry(f"ep-{number % 3}", b'{"n": %d}' % number) for number in numbers]


def away(_: Sequence[Entry]) -> None:
    raise Retry("away")


def test_a_killed_process_leaves_its_spool_to_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder)], capture_output=True, cwd=REPOSITORY, env={**os.environ}, check=False
    )
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, b"5\n"), killed.stderr
    taken: list[Entry] = []
    following = Spool(folder, "boot-8", "turns")
    assert following.holds, "what is new queues behind what was left"
    following.add([Entry("ep", b'{"n": 6}')])
    with pytest.raises(Retry):
        following.drain(away)
    assert following.drain(taken.extend) == 6, "each acknowledged line, and not the one that was cut"
    assert taken == [Entry("ep", b'{"n": %d}' % number) for number in (0, 1, 2, 3, 4, 6)]
    assert not list(folder.glob("*")) and following.drain(taken.extend) == 0 and not following.holds


def test_a_spool_in_use_is_left_to_its_owner(tmp_path: Path) -> None:
    owner, other = Spool(tmp_path, "boot-1", "turns"), Spool(tmp_path, "boot-2", "turns")
    owner.add([Entry("ep", b"{}")])
    taken: list[Entry] = []
    assert other.drain(taken.extend) == 0
    assert owner.drain(taken.extend) == 1 and taken == [Entry("ep", b"{}")]
    assert not owner.holds


def test_topics_share_a_folder_and_nothing_else(tmp_path: Path) -> None:
    turns, outcomes = Spool(tmp_path, "a", "turns"), Spool(tmp_path, "a", "outcomes")
    turns.add(numbered(1))
    outcomes.add(numbered(2, 3))
    turns.close()
    outcomes.close()
    taken: list[Entry] = []
    assert Spool(tmp_path, "b", "outcomes").drain(taken.extend) == 2 and taken == numbered(2, 3)


def test_beyond_its_limit_it_is_full_until_the_log_has_taken_something(tmp_path: Path) -> None:
    one = len(b'ep-0\t{"n": 0}\n')
    spool = Spool(tmp_path, "a", "turns", most_bytes=3 * one)
    spool.add(numbered(0, 1, 2))
    with pytest.raises(SpoolFull, match="its limit"):
        spool.add(numbered(3))
    spool.close()
    after_a_restart = Spool(tmp_path, "b", "turns", most_bytes=3 * one)
    with pytest.raises(SpoolFull):
        after_a_restart.add(numbered(3))
    taken: list[Entry] = []
    assert after_a_restart.drain(taken.extend) == 3
    after_a_restart.add(numbered(3))
    assert after_a_restart.drain(taken.extend) == 1 and taken == numbered(0, 1, 2, 3)


def test_a_log_that_goes_away_in_between_gets_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infra.spool, "AT_ONCE", 2)
    spool = Spool(tmp_path, "a", "turns")
    spool.add(numbered(*range(5)))
    taken: list[Entry] = []

    def fails_at_the_second(entries: Sequence[Entry]) -> None:
        if taken:
            raise Retry("away")
        taken.extend(entries)

    with pytest.raises(Retry):
        spool.drain(fails_at_the_second)
    assert spool.drain(taken.extend) == 3 and taken == numbered(*range(5))


def test_what_the_log_will_never_take_holds_up_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "a", "turns")
    spool.add(numbered(*range(4)))
    taken: list[Entry] = []

    def append(entries: Sequence[Entry]) -> None:
        if numbered(2)[0] in entries:
            raise Poison("too_large", "no")
        taken.extend(entries)

    spool.drain(append)
    assert taken == numbered(0, 1, 3)
    assert (tmp_path / "turns.refused").read_bytes() == numbered(2)[0].value + b"\n" and not spool.holds


def test_a_steady_stream_does_not_keep_it_from_being_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infra.spool, "FILE_BYTES", 2000)
    monkeypatch.setattr(infra.spool, "HANDED_BYTES", 500)
    spool = Spool(tmp_path, "a", "turns")
    spool.add(numbered(0))
    taken: list[Entry] = []
    given, over = 1, threading.Event()

    def write() -> None:
        nonlocal given
        while not over.is_set() and spool.must_queue():
            spool.add(numbered(given, given + 1))
            given += 2

    writer = threading.Thread(daemon=True, target=write)
    writer.start()
    deadline = time.monotonic() + 40
    while writer.is_alive() and time.monotonic() < deadline:
        spool.drain(lambda entries: time.sleep(0.002) or taken.extend(entries))  # type: ignore[func-returns-value]
    ended = not writer.is_alive()
    over.set()
    writer.join()
    assert ended and taken == numbered(*range(given)) and not list(tmp_path.iterdir())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(st.sampled_from(["add", "drain", "fail", "restart"]), max_size=25))
def test_whatever_happens_everything_leaves_once_and_in_order(acts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool, given = Spool(folder, "0", "turns"), 0
    taken: list[Entry] = []
    for number, act in enumerate([*acts, "drain"]):
        if act == "add":
            spool.add(numbered(given, given + 1))
            given += 2
        elif act == "drain":
            spool.drain(taken.extend)
        elif act == "restart":
            spool.close()
            spool = Spool(folder, str(number), "turns")
        elif spool.holds:
            with pytest.raises(Retry):
                spool.drain(away)
    assert taken == numbered(*range(given)) and not list(folder.iterdir())
