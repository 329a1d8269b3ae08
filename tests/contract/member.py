"""A group member in a process of its own, which a test can kill.

Run as `python member.py URL PAYLOADS GROUP TOPIC`, it polls for ever and prints how many partitions it has whenever that changes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.eventlog.open import open_log_at


class KillableMember:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait_for(self, partitions: int) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if int(line) == partitions:
                return
        raise AssertionError("the member ended before it had its partitions")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def killable_member(url: str, payloads: Path, group: str, topic: str) -> Iterator[KillableMember]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.contract.member", url, str(payloads), group, topic], stdout=subprocess.PIPE, text=True
    )
    try:
        yield KillableMember(process)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def main(url: str, payloads: str, group: str, topic: str) -> None:
    consumer = open_log_at(url, Path(payloads)).consumer(group, [topic])
    had = 0
    while True:
        consumer.poll(0.1)
        if len(consumer.assignment()) != had:
            had = len(consumer.assignment())
            print(had, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
