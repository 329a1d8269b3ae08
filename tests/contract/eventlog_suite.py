"""The promise of `infra.eventlog.port`, as tests. An adapter keeps it by passing them: a subclass gives the fixture `url`.

Topics and groups get fresh names, so the log may be shared with other tests and runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contracts.topics import Topic
from infra.eventlog.open import open_log_at
from infra.eventlog.port import Consumer, EventLog, OnAssigned
from tests.contract.eventlog_acts import (
    Join,
    new_topic,
)
from tests.contract.eventlog_groups import Groups
from tests.contract.eventlog_records import Records


class EventLogSuite(Records, Groups):
    @pytest.fixture
    def payloads(self, tmp_path: Path) -> Path:
        return tmp_path / "payloads"

    @pytest.fixture
    def another(self, url: str, payloads: Path) -> Callable[[], EventLog]:
        """The same log, as another process would open it."""
        return lambda: open_log_at(url, payloads)

    @pytest.fixture
    def log(self, another: Callable[[], EventLog]) -> Iterator[EventLog]:
        log = another()
        yield log
        log.close()

    @pytest.fixture
    def topic(self, log: EventLog) -> Topic:
        topic = new_topic()
        log.ensure([topic])
        return topic

    @pytest.fixture
    def join(self, log: EventLog) -> Iterator[Join]:
        consumers: list[Consumer] = []

        def joined(group: str, *topics: Topic, on_assigned: OnAssigned | None = None) -> Consumer:
            consumers.append(log.consumer(group, [topic.name for topic in topics], on_assigned))
            return consumers[-1]

        yield joined
        for consumer in consumers:
            consumer.close()
