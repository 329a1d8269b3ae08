"""Entries are safe before their senders hear of it, in few appends, and a log that hangs holds nobody up."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import infra.append
from contracts.errors import Poison, Retry
from contracts.topics import OUTCOMES
from infra.append import Appender
from infra.eventlog.port import Entry
from infra.spool import Spool


class Log:
    """Keeps what it is given; `before` may fail or wait, as a log that is away does."""

    def __init__(self) -> None:
        self.taken: list[Entry] = []
        self.appends = 0
        self.before: Any = lambda entries: None

    def ensure(self, topics: object) -> None:
        pass

    def append(self, topic: str, entries: Sequence[Entry]) -> None:
        self.before(entries)
        self.appends += 1
        self.taken += entries


def numbered(*numbers: int) -> list[Entry]:
    return [Entry("ep", b"%d" % number) for number in numbers]


def open_appender(log: Log, folder: Path, **settings: Any) -> Appender:
    return Appender(log, OUTCOMES, Spool(folder, "test", OUTCOMES.name), **{"gather_ms": 1.0, **settings})  # type: ignore[arg-type]


async def store(appender: Appender, *entries: Sequence[Entry]) -> list[BaseException | None]:
    return await asyncio.gather(*(appender.store(some) for some in entries), return_exceptions=True)


def test_what_comes_together_is_few_appends_in_the_order_it_came(tmp_path: Path) -> None:
    log = Log()
    appender = open_appender(log, tmp_path, gather_ms=300.0)
    assert asyncio.run(store(appender, *(numbered(number) for number in range(100)))) == [None] * 100
    appender.close()
    assert log.taken == numbered(*range(100)) and log.appends <= 3


def test_poison_is_its_sender_s_alone(tmp_path: Path) -> None:
    def picky(entries: Sequence[Entry]) -> None:
        if numbered(1)[0] in entries:
            raise Poison("too_large", "no")

    log = Log()
    log.before = picky
    appender = open_appender(log, tmp_path, gather_ms=20.0)
    first, second, third = asyncio.run(store(appender, numbered(0), numbered(1), numbered(2)))
    appender.close()
    assert (first, third) == (None, None) and isinstance(second, Poison) and log.taken == numbered(0, 2)


def test_an_entry_that_cannot_be_made_is_its_sender_s_failure_alone(tmp_path: Path) -> None:
    def broken() -> list[Entry]:
        raise ZeroDivisionError

    log = Log()
    appender = open_appender(log, tmp_path, gather_ms=20.0)
    first, second = asyncio.run(store(appender, lambda: numbered(0), broken))  # type: ignore[arg-type]
    appender.close()
    assert first is None and isinstance(second, ZeroDivisionError) and log.taken == numbered(0)


def test_a_log_that_hangs_is_not_waited_for_and_nothing_is_lost_when_it_wakes(tmp_path: Path) -> None:
    log, woken = Log(), threading.Event()
    log.before = lambda entries: woken.wait(30)
    appender = open_appender(log, tmp_path, patience_s=0.1)
    start = time.monotonic()
    assert asyncio.run(store(appender, numbered(0))) == [None]
    assert asyncio.run(store(appender, numbered(1), numbered(2))) == [None, None]
    assert time.monotonic() - start < 10 and log.taken == []
    woken.set()
    assert appender.drain() == 3
    assert asyncio.run(store(appender, numbered(3))) == [None]
    appender.drain()  # the thread that stood in may have been the one to take the last
    appender.close()
    assert {entry.value for entry in log.taken} == {b"0", b"1", b"2", b"3"}
    assert log.taken.count(numbered(0)[0]) <= 2 and not list(tmp_path.iterdir())


def test_closing_while_the_log_hangs_leaves_everything_in_the_spool(tmp_path: Path) -> None:
    log, woken = Log(), threading.Event()
    log.before = lambda entries: woken.wait(30)
    appender = open_appender(log, tmp_path, patience_s=0.1)
    asyncio.run(store(appender, numbered(0)))
    closing = threading.Thread(daemon=True, target=appender.close)
    closing.start()
    time.sleep(0.8)  # several looks of the thread that stands in: once is enough
    woken.set()
    closing.join(20)
    taken: list[Entry] = []
    assert Spool(tmp_path, "next", OUTCOMES.name).drain(taken.extend) == 1 and taken == numbered(0)


@pytest.mark.parametrize("error", [Retry("away"), RuntimeError("a bug in the client")])
def test_whatever_the_log_says_the_entries_are_spooled(tmp_path: Path, error: Exception) -> None:
    def fail(entries: Sequence[Entry]) -> None:
        raise error

    log = Log()
    log.before = fail
    appender = open_appender(log, tmp_path)
    assert asyncio.run(store(appender, numbered(0, 1))) == [None]
    log.before = lambda entries: None
    assert appender.drain() == 2 and log.taken == numbered(0, 1)
    appender.close()


def test_light_traffic_goes_on_while_the_log_hangs_and_keeps_its_order(tmp_path: Path) -> None:
    """As with a dead Kafka: each append fails, after long; the drain tries one after the other."""
    log, woken, over = Log(), threading.Event(), threading.Event()
    tries: list[str] = []

    def hang(entries: Sequence[Entry]) -> None:
        tries.append(threading.current_thread().name)
        if not woken.wait(1.2):
            raise Retry("no broker answers")

    log.before = hang
    appender = open_appender(log, tmp_path, patience_s=0.3)

    def drain() -> None:
        while not over.wait(0.05):
            try:
                appender.drain()
            except Retry:
                continue

    async def light_traffic() -> list[float]:
        waited = []
        for number in range(30):
            start = time.monotonic()
            await appender.store(numbered(number))
            waited.append(time.monotonic() - start)
            await asyncio.sleep(0.08)
        return waited

    draining = threading.Thread(daemon=True, target=drain, name="drain")
    draining.start()
    waited = asyncio.run(light_traffic())
    assert log.taken == [] and "drain" in tries, "the log was away all the while, and the drain tried"
    assert waited[0] > 0.3 and len(tries) - tries.count("drain") == 1, "only the first met the log"
    assert sum(one > 0.3 for one in waited) <= 5, "and nobody was held up by the drain, for whom the log hung nearly all the while"
    woken.set()
    while appender.drain() or list(tmp_path.iterdir()):
        time.sleep(0.01)
    over.set()
    draining.join()
    assert asyncio.run(store(appender, numbered(30))) == [None]
    appender.drain()
    appender.close()
    assert list(dict.fromkeys(log.taken)) == numbered(*range(31)) and not list(tmp_path.iterdir())


def test_those_behind_somebody_s_poison_are_not_held_up_by_a_log_that_hangs(tmp_path: Path) -> None:
    log, woken = Log(), threading.Event()

    def picky(entries: Sequence[Entry]) -> None:
        if len(entries) > 1:
            raise Poison("too_large", "no")
        assert woken.wait(30)

    log.before = picky
    appender = open_appender(log, tmp_path, gather_ms=20.0, patience_s=0.1)
    start = time.monotonic()
    assert asyncio.run(store(appender, *(numbered(number) for number in range(5)))) == [None] * 5
    assert time.monotonic() - start < 20 and log.taken == []
    log.before = lambda entries: None
    woken.set()
    appender.drain()
    appender.close()
    assert list(dict.fromkeys(log.taken)) == numbered(*range(5))


def test_what_cannot_be_spooled_is_its_sender_s_failure_alone(tmp_path: Path) -> None:
    def fail(entries: Sequence[Entry]) -> None:
        raise Retry("away")

    log = Log()
    log.before = fail
    appender = open_appender(log, tmp_path, gather_ms=20.0)
    first, second, third = asyncio.run(store(appender, numbered(0), [Entry("ep", b"two\nlines")], numbered(2)))
    assert (first, third) == (None, None) and isinstance(second, ValueError)
    assert asyncio.run(store(appender, numbered(3))) == [None], "the appender lives on"
    log.before = lambda entries: None
    assert appender.drain() == 3 and log.taken == numbered(0, 2, 3)
    appender.close()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_log_does_the_order_stays(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infra.append, "_LOOK_S", 0.005)
    log, chance, over = Log(), random.Random(seed), threading.Event()

    def moody(entries: Sequence[Entry]) -> None:
        what = chance.random()
        if what < 0.2:
            time.sleep(chance.random() / 10)
        if what < 0.1:
            raise Retry("away")

    log.before = moody
    appender = open_appender(log, tmp_path, patience_s=0.01)

    def drain() -> None:
        while not over.wait(0.002):
            try:
                appender.drain()
            except Retry:
                continue

    async def traffic() -> list[None]:
        stores = []
        for number in range(600):
            stores.append(asyncio.ensure_future(appender.store(numbered(number))))
            await asyncio.sleep(0.002 if number % 3 else 0)
        return await asyncio.gather(*stores)

    draining = threading.Thread(daemon=True, target=drain)
    draining.start()
    asyncio.run(traffic())
    over.set()
    draining.join()
    log.before = lambda entries: None
    appender.drain()
    appender.close()
    assert list(dict.fromkeys(log.taken)) == numbered(*range(600))
