"""The spool beside a log that hangs, a disk that damages, a clock that jumps and a kill at the worst moment: order stays, nothing
is lost, nobody waits."""

from __future__ import annotations

import logging
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import infra.spool
from contracts.errors import Retry
from infra.eventlog.port import Entry
from infra.spool import Spool, put_aside
from tests.conftest import REPOSITORY

KILLED_AFTER_A_HAND_OVER = """
import os, signal, sys
from pathlib import Path
import infra.spool
from infra.eventlog.port import Entry
infra.spool.AT_ONCE = 2
spool = infra.spool.Spool(Path(sys.argv[1]), "boot-7", "turns")
spool.add([Entry("ep", b'{"n": %d}' % number) for number in range(5)])
appends = []
def append(entries):
    print(*(entry.value.decode() for entry in entries), sep="\\n", flush=True)
    appends.append(entries)
    if len(appends) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
spool.drain(append)
"""


def numbered(*numbers: int) -> list[Entry]:
    return [Entry(f"ep-{number % 3}", b'{"n": %d}' % number) for number in numbers]


def away(_: Sequence[Entry]) -> None:
    raise Retry("away")


class Hanging:
    """A log that neither takes entries nor says that it is away, until it is `woken`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.taken: list[Entry] = []
        self.reached, self.woken = threading.Event(), threading.Event()
        self.error = error

    def append(self, entries: Sequence[Entry]) -> None:
        self.reached.set()
        assert self.woken.wait(30)
        if self.error is not None:
            raise self.error
        self.taken.extend(entries)


@pytest.mark.parametrize("error", [None, Retry("away")])
def test_nobody_waits_for_a_log_that_hangs(tmp_path: Path, error: Exception | None) -> None:
    spool, log = Spool(tmp_path, "a", "turns"), Hanging(error)
    spool.add(numbered(0))

    def drain() -> None:
        try:
            spool.drain(log.append)
        except Retry:
            assert error is not None

    draining = threading.Thread(daemon=True, target=drain)
    draining.start()
    assert log.reached.wait(10)
    start = time.monotonic()
    for number in range(1, 20):
        assert spool.must_queue(), "nothing overtakes what is on its way"
        spool.add(numbered(number))
    waited = time.monotonic() - start
    log.woken.set()
    draining.join()
    assert waited < 20
    log.error = None
    spool.drain(log.append)
    assert log.taken == numbered(*range(20)) and not spool.must_queue() and not list(tmp_path.iterdir())


def test_the_last_entries_are_waited_for_while_the_log_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infra.spool, "AT_ONCE", 1)
    monkeypatch.setattr(infra.spool, "LAST_WAIT_S", 20.0)
    spool, last = Spool(tmp_path, "a", "turns"), threading.Event()
    taken: list[Entry] = []
    spool.add(numbered(0, 1))

    def append(entries: Sequence[Entry]) -> None:
        if taken:
            last.set()
            time.sleep(0.2)
        taken.extend(entries)

    draining = threading.Thread(daemon=True, target=spool.drain, args=[append])
    draining.start()
    assert last.wait(10) and not spool.must_queue() and taken == numbered(0, 1)
    draining.join()


def test_a_log_that_hangs_at_the_last_entries_is_waited_for_once_and_briefly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infra.spool, "AT_ONCE", 1)
    spool, log = Spool(tmp_path, "a", "turns"), Hanging()
    spool.add(numbered(0, 1))
    draining = threading.Thread(
        daemon=True, target=spool.drain, args=[lambda some: log.append(some) if log.taken else log.taken.extend(some)]
    )
    draining.start()
    assert log.reached.wait(10)
    start = time.monotonic()
    assert all(spool.must_queue() for _ in range(50)), "what is not in the log yet is still here"
    assert time.monotonic() - start < 15 * infra.spool.LAST_WAIT_S
    log.woken.set()
    draining.join()
    assert log.taken == numbered(0, 1) and not spool.must_queue()


@pytest.mark.parametrize(
    "damaged",
    [b"ep-\xff\xfe\t{}", b"no tab at all", b"", b"\0" * 512, b'ep-0\t{"n": \0\0\0}'],
    ids=["key", "tab", "empty", "zeros", "torn"],
)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_damaged_line_is_put_aside_and_the_rest_drains(
    tmp_path: Path, damaged: bytes, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [b"%s\t%s" % ((entry.key or "").encode(), entry.value) for entry in numbered(*range(4))]
    lines.insert(place, damaged)
    (tmp_path / "00000000000000000001-dead-1.turns").write_bytes(b"".join(line + b"\n" for line in lines))
    spool = Spool(tmp_path, "a", "turns")
    spool.add(numbered(4))
    for _ in range(3):
        with pytest.raises(Retry):
            spool.drain(away)
    taken: list[Entry] = []
    with caplog.at_level(logging.ERROR, logger="infra.spool"):
        assert spool.drain(taken.extend) == 5
    assert taken == numbered(*range(5)) and not spool.holds
    assert (tmp_path / "turns.refused").read_bytes() == damaged + b"\n", "once"
    assert put_aside(tmp_path) == {"turns": 1} and spool.held_bytes == 0
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_log_that_goes_away_beside_a_damaged_line_gets_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "1-dead-1.turns").write_bytes(b'ep-0\t{"n": 0}\ndamaged\nep-1\t{"n": 1}\nep-2\t{"n": 2}\n')
    spool, calls = Spool(tmp_path, "a", "turns"), 0
    taken: list[Entry] = []

    def every_other(entries: Sequence[Entry]) -> None:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise Retry("away")
        taken.extend(entries)

    for _ in range(5):
        try:
            spool.drain(every_other)
        except Retry:
            continue
    assert taken == numbered(0, 1, 2) and put_aside(tmp_path) == {"turns": 1}
    assert (tmp_path / "turns.refused").read_bytes() == b"damaged\n"


@pytest.mark.parametrize("entry", [Entry("ep", b"{\n}"), Entry("e\tp", b"{}"), Entry("e\np", b"{}"), Entry("ep", b"{\0}")])
def test_what_could_not_be_read_back_is_not_taken(tmp_path: Path, entry: Entry) -> None:
    spool = Spool(tmp_path, "a", "turns")
    with pytest.raises(ValueError, match="one line"):
        spool.add([*numbered(0), entry])
    assert not spool.holds


def test_a_log_that_is_away_for_long_does_not_make_a_file_of_each_try(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "a", "turns")
    for number in range(50):
        spool.add(numbered(number))
        with pytest.raises(Retry):
            spool.drain(away)
    assert len(list(tmp_path.iterdir())) <= 2
    taken: list[Entry] = []
    spool.drain(taken.extend)
    assert taken == numbered(*range(50))


def test_a_clock_that_is_set_back_does_not_change_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, spool = time.time_ns(), Spool(tmp_path, "a", "turns")
    taken: list[Entry] = []
    for number in range(3):
        monkeypatch.setattr(time, "time_ns", lambda back=number: now - back * 10**9)
        monkeypatch.setattr(infra.spool, "FILE_BYTES", 1)
        spool.add(numbered(number))
    spool.close()
    Spool(tmp_path, "b", "turns").drain(taken.extend)
    assert taken == numbered(0, 1, 2)


@pytest.mark.parametrize("appends", [1, 2, 3])
def test_a_kill_between_hand_over_and_removal_repeats_and_loses_nothing(tmp_path: Path, appends: int) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER_A_HAND_OVER, str(tmp_path), str(appends)],
        capture_output=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    taken = [Entry("ep", line) for line in killed.stdout.splitlines()]
    assert len(taken) == min(5, 2 * appends)
    Spool(tmp_path, "boot-8", "turns").drain(taken.extend)
    assert list(dict.fromkeys(taken)) == [Entry("ep", b'{"n": %d}' % number) for number in range(5)]
    assert not list(tmp_path.iterdir())


def test_closing_while_the_log_hangs_leaves_the_files_to_the_next(tmp_path: Path) -> None:
    spool, log = Spool(tmp_path, "a", "turns"), Hanging()
    spool.add(numbered(0, 1))
    draining = threading.Thread(daemon=True, target=spool.drain, args=[log.append])
    draining.start()
    assert log.reached.wait(10)
    spool.add(numbered(2))
    spool.close()
    log.woken.set()
    draining.join()
    Spool(tmp_path, "b", "turns").drain(log.taken.extend)
    assert list(dict.fromkeys(log.taken)) == numbered(0, 1, 2)


@pytest.mark.parametrize("seed", range(6))
def test_one_writer_and_two_drains_keep_the_order(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infra.spool, "FILE_BYTES", 400)
    monkeypatch.setattr(infra.spool, "HANDED_BYTES", 150)
    monkeypatch.setattr(infra.spool, "AT_ONCE", 7)
    monkeypatch.setattr(infra.spool, "LAST_WAIT_S", 0.01)
    chance, spool, over = random.Random(seed), Spool(tmp_path, "a", "turns"), threading.Event()
    taken: list[Entry] = []
    direct = 0

    def append(entries: Sequence[Entry]) -> None:
        what = chance.random()
        if what < 0.1:
            time.sleep(chance.random() / 50)
        if what < 0.05:
            raise Retry("away")
        taken.extend(entries)

    def drain() -> None:
        while not over.is_set():
            try:
                spool.drain(append)
            except Retry:
                time.sleep(0.001)

    drains = [threading.Thread(daemon=True, target=drain) for _ in range(2)]
    for thread in drains:
        thread.start()
    for number in range(500):
        if not spool.must_queue():
            try:
                append(numbered(number))
                direct += 1
                continue
            except Retry:
                pass
        spool.add(numbered(number))
    over.set()
    for thread in drains:
        thread.join()
    spool.drain(taken.extend)
    assert taken == numbered(*range(500)) and not spool.holds and spool.held_bytes == 0
    assert 0 < direct < 500, "both ways were taken"
