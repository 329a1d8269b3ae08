"""A member of a group with its effects in a database, in a process of its own that a test may stop or kill.

`python -m tests.integration.stream_member LOG DATABASE GROUP TOPIC SLOW_S`: counts each record under its key; a batch takes
SLOW_S inside its transaction. Prints `ready`, and `N done` after each batch.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from contracts.outcome import Refusal
from contracts.topics import Topic
from infra.db.counters import count
from infra.db.engine import open_db
from infra.db.query import Session
from infra.eventlog.open import open_log
from infra.settings import Settings
from infra.stream import Delivery, Stream


def tally(group: str, slow_s: float, session: Session, deliveries: Sequence[Delivery]) -> None:
    for delivery in deliveries:
        count(session, group, str(delivery.message.key))
    time.sleep(slow_s)


class StreamMember:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait_for(self, word: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if word in line:
                return
        raise AssertionError(f"the member ended before it said {word!r}")

    def sleep(self) -> None:
        """As a machine that swaps, or a virtual one that is moved."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def stream_member(log_url: str, database: str, group: str, topic: Topic, slow_s: float) -> Iterator[StreamMember]:
    command = [sys.executable, "-m", "tests.integration.stream_member", log_url, database, group, topic.name, str(slow_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield StreamMember(process)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def main(log_url: str, database: str, group: str, topic: str, slow_s: str) -> None:
    def apply(session: Session, deliveries: Sequence[Delivery]) -> None:
        print("works", flush=True)
        tally(group, float(slow_s), session, deliveries)

    log = open_log(Settings(log_url=log_url))
    stream = Stream(open_db(database), log, group, [Topic(topic, Refusal, "refusal_id", 4, 86_400)], apply)
    print("ready", flush=True)
    stop = threading.Event()
    while not stop.is_set():
        if done := stream.step(0.2, most=20):
            print(f"{done} done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
