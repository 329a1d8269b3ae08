"""Topics on a broker: making those that are missing, and telling where those that exist differ from what was asked.

Enters: an administrator's client and topics. Leaves: the names that were there before, and warnings in the log. What can go
wrong: the client's errors, which the caller explains.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, NoError, TopicAlreadyExistsError, for_code

from contracts.topics import Topic

log = logging.getLogger(__name__)


def create(admin: Any, wanted: Mapping[str, Topic], timeout_ms: int) -> set[str]:
    there = wanted.keys() & set(admin.list_topics())
    missing = sorted(wanted.keys() - there)
    if missing:
        made = admin.create_topics({name: _new(wanted[name]) for name in missing}, raise_errors=False)
        for answer in made["topics"]:
            error = for_code(answer["error_code"])
            if error not in (NoError, TopicAlreadyExistsError):
                raise error(f"{answer['name']}: {answer['error_message']}")
    admin.wait_for_topics(sorted(wanted), timeout_ms=timeout_ms)
    return set(there)


def partition_counts(admin: Any) -> dict[str, int]:
    return {
        found["name"]: len(found["partitions"])
        for found in admin.describe_topics()
        if found["error_code"] == 0 and not found["is_internal"]
    }


def report_differences(admin: Any, topics: Sequence[Topic]) -> None:
    """A broker that does not tell its settings is not asked twice: nothing depends on the answer."""
    counts = partition_counts(admin)
    try:
        told = admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics], config_filter="all"
        )["topic"]
    except (KafkaError, KeyError) as error:
        log.info("the broker does not tell how its topics are set up: %s", error)
        told = {}
    for topic in topics:
        if counts.get(topic.name) != topic.partitions:
            log.warning("topic %s has %s partitions, not %d", topic.name, counts.get(topic.name), topic.partitions)
        for name, value in _configs(topic).items():
            found = told.get(topic.name, {}).get(name, {}).get("value")
            if found not in (None, value):
                log.warning("topic %s has %s=%s, not %s: left as its operator set it", topic.name, name, found, value)


def _configs(topic: Topic) -> dict[str, str]:
    return {"retention.ms": str(topic.retention_s * 1000), "message.timestamp.type": "LogAppendTime"}


def _new(topic: Topic) -> dict[str, object]:
    return {"num_partitions": topic.partitions, "configs": _configs(topic)}
