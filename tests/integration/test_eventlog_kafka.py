"""The event log on a real Apache Kafka keeps the promise of the port, and what only a broker can do to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts.errors import Poison, Retry
from infra.eventlog.access import KafkaAccess
from infra.eventlog.broker import BrokerLog
from infra.eventlog.port import Entry, EventLog
from tests.contract.eventlog_acts import Join, new_group, new_topic, numbered, take, values
from tests.contract.eventlog_suite import EventLogSuite
from tests.integration.conftest import Kafka

pytestmark = pytest.mark.integration


class TestKafka(EventLogSuite):
    @pytest.fixture
    def url(self, kafka: Kafka) -> str:
        return f"kafka://{kafka.bootstrap}"

    def test_a_record_that_is_too_large_is_poison(self, kafka: Kafka) -> None:
        """Beneath the payload folder, which no record of this size passes."""
        topic = new_topic(partitions=1)
        log = BrokerLog(kafka.bootstrap, KafkaAccess())
        log.ensure([topic])
        with pytest.raises(Poison, match="too_large"):
            log.append(topic.name, [Entry("key", bytes(2 * 1024 * 1024))])
        log.append(topic.name, numbered(1))
        assert values(log.scan(topic.name)) == [0]
        log.close()

    def test_a_killed_broker_is_a_retry_and_nothing_is_lost(
        self, kafka: Kafka, another: Callable[[], EventLog], log: EventLog, join: Join
    ) -> None:
        if not kafka.ours:
            pytest.skip("this broker was not started by the tests, so it is not theirs to kill")
        topic = new_topic()
        log.ensure([topic])
        consumer = join(new_group(), topic)
        log.append(topic.name, numbered(30, keys=10))
        read = take(consumer, 30)
        kafka.kill()
        fresh = another()
        with pytest.raises(Retry, match=r"Kafka cannot be reached \(127.0.0.1:\d+: Connection refused\)"):
            fresh.ends(topic.name)
        kafka.start()
        log.append(topic.name, numbered(30, keys=10, start=30))
        read += take(consumer, 30)
        assert set(values(read)) == set(range(60))
        assert len(list(fresh.scan(topic.name))) == 60
        fresh.close()
