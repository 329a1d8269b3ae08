"""From an address to an event log, so that a deployment is chosen by one setting.

Enters: `sqlite:///path/to/file` (a fourth slash for an absolute path) or `kafka://host:port[,host:port]`, and for Kafka what
its client needs to be let in. Leaves: the log. Goes wrong: any other address raises `StartError`, which says what was
expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from contracts.errors import StartError
from infra.eventlog.port import EventLog

EXPECTED = "expected sqlite:///path/to/file or kafka://host:port[,host:port]"


def open_log(url: str, security: Mapping[str, str] | None = None) -> EventLog:
    """`security`: kafka-python's settings such as `security_protocol`; secrets have no place in an address."""
    scheme, found, rest = url.partition("://")
    if found and scheme == "sqlite":
        host, _, path = rest.partition("/")
        if not host and path.strip("/"):
            from infra.eventlog.embedded import EmbeddedLog

            return EmbeddedLog(Path(path))
    if found and scheme == "kafka":
        brokers = rest.rstrip("/").split(",")
        if all(_is_address(broker) for broker in brokers):
            from infra.eventlog.broker import BrokerLog

            return BrokerLog(",".join(brokers), security)
    raise StartError(f"The event log's address {url!r} is not understood: {EXPECTED}.")


def _is_address(broker: str) -> bool:
    host, colon, port = broker.rpartition(":")
    return bool(host and colon and port.isdecimal() and 0 < int(port) < 65536)
