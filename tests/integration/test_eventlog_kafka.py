"""The event log on a real Apache Kafka keeps the promise of the port, and what only a broker can do to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from contracts.errors import Poison, Retry
from contracts.outcome import Refusal
from contracts.topics import Topic
from infra.eventlog.access import KafkaAccess
from infra.eventlog.broker import BrokerLog
from infra.eventlog.port import Entry, EventLog
from tests.contract.eventlog_acts import Join, new_group, new_topic, numbered, take, values
from tests.contract.eventlog_suite import EventLogSuite
from tests.integration.conftest import Kafka
from tests.integration.tansu import Tansu

pytestmark = pytest.mark.integration

NO_NOTES = "Tansu keeps no note beside a committed offset, so a group goes on at the beginning of a record"
NO_SETTINGS = "Tansu does not tell how a topic is set up"
TANSU_DOES_NOT = {
    "test_a_restart_resumes_at_what_was_committed": NO_NOTES,
    "test_a_member_commits_only_what_is_its_own": NO_NOTES,
    "test_a_start_beyond_the_end_reads_again": "Tansu does not say that an offset lies beyond the end",
    "test_everything_is_read_at_least_once_while_members_come_and_go": "with Tansu a group takes 23 seconds for each change",
    "test_topics_are_made_with_their_partitions_and_retention": NO_SETTINGS,
    "test_a_topic_that_differs_is_left_as_it_is_and_told_once": NO_SETTINGS,
}


class TestKafka(EventLogSuite):
    @pytest.fixture
    def url(self, kafka: Kafka | Tansu, request: pytest.FixtureRequest) -> str:
        if isinstance(kafka, Tansu) and (reason := TANSU_DOES_NOT.get(request.node.originalname)):
            pytest.xfail(reason)
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

    @pytest.mark.parametrize("compression", ["gzip", "zstd", "lz4", "none"])
    def test_each_codec_goes_round(self, kafka: Kafka, log: EventLog, topic: Topic, compression: str) -> None:
        writer = BrokerLog(kafka.bootstrap, KafkaAccess.model_validate({"compression": compression}))
        writer.append(topic.name, numbered(700, keys=20))
        writer.close()
        assert sorted(values(log.scan(topic.name))) == list(range(700))

    def test_topics_are_made_with_their_partitions_and_retention(self, kafka: Kafka, log: EventLog) -> None:
        topic = Topic(new_topic().name, Refusal, "refusal_id", 3, 7_200)
        log.ensure([topic])
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        told = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic.name)])["topic"][topic.name]
        admin.close()
        assert len(log.ends(topic.name)) == 3
        assert told["retention.ms"]["value"] == "7200000" and told["message.timestamp.type"]["value"] == "LogAppendTime"

    def test_a_topic_that_differs_is_left_as_it_is_and_told_once(
        self, log: EventLog, another: Callable[[], EventLog], caplog: pytest.LogCaptureFixture
    ) -> None:
        name = new_topic().name
        log.ensure([Topic(name, Refusal, "refusal_id", 2, 3_600)])
        other, wanted = another(), Topic(name, Refusal, "refusal_id", 4, 86_400)
        with caplog.at_level("WARNING", "infra.eventlog"):
            other.ensure([wanted])
            other.ensure([wanted])
        assert [record.message for record in caplog.records if name in record.message] == [
            f"topic {name} has 2 partitions, not 4",
            f"topic {name} has retention.ms=3600000, not 86400000: left as its operator set it",
        ]
        assert len(other.ends(name)) == 2
        other.close()
