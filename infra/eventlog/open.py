"""From settings to an event log, so that a deployment is chosen by one of them.

Enters: settings whose `event_log` is `sqlite:///path/to/file` (a fourth slash for an absolute path) or
`kafka://host:port[,host:port]`; for Kafka also `SLIPSTREAM_KAFKA_*`, which say how it lets this process in. Leaves: the log, with
large values in the artifact folder. Goes wrong: any other address raises `StartError`, which says what was expected.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from contracts.errors import StartError
from infra.eventlog.payload_log import PayloadLog
from infra.eventlog.payloads import Payloads
from infra.eventlog.port import EventLog
from infra.settings import Settings, load

if TYPE_CHECKING:
    from infra.eventlog.access import KafkaAccess

EXPECTED = "expected sqlite:///path/to/file or kafka://host:port[,host:port]"


def open_log(settings: Settings) -> EventLog:
    return open_log_at(settings.event_log, settings.artifact_root / "payloads")


def open_log_at(url: str, payloads: Path, access: KafkaAccess | None = None) -> EventLog:
    """`payloads`: folder for large values, the same for all processes. `access`: None reads the environment."""
    return PayloadLog(_open(url, access), Payloads(payloads))


def _open(url: str, access: KafkaAccess | None) -> EventLog:
    scheme, found, rest = url.partition("://")
    if found and scheme == "sqlite":
        host, _, path = rest.partition("/")
        if not host and path.strip("/"):
            from infra.eventlog.embedded import EmbeddedLog

            return EmbeddedLog(Path(path))
    if found and scheme == "kafka":
        brokers = rest.rstrip("/").split(",")
        if all(_is_address(broker) for broker in brokers):
            from infra.eventlog.access import KafkaAccess
            from infra.eventlog.broker import BrokerLog

            return BrokerLog(",".join(brokers), access or load(KafkaAccess))
    shown = f"{scheme}://…@{url.rpartition('@')[2]}" if "@" in url else url  # what is before it may be a password
    raise StartError(f"The event log's address {shown!r} is not understood: {EXPECTED}.")


def _is_address(broker: str) -> bool:
    host, colon, port = broker.rpartition(":")
    return bool(host and colon and port.isdecimal() and 0 < int(port) < 65536)
