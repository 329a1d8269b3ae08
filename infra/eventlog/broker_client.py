"""Opening one of kafka-python's clients.

Enters: addresses and settings. Leaves: a connected client. Goes wrong: `Retry` when nobody listens at any address.

It knocks first: a client (3.0.12) that finds no broker fails, but leaves its network thread behind, one for each try.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

from contracts.errors import Retry
from infra.eventlog.broker_errors import explained

KNOCK_S = 3.0


def open_client(kind: Callable[..., Any], bootstrap: str, settings: Mapping[str, object], **more: object) -> Any:
    _knock(bootstrap)
    with explained(bootstrap):
        return kind(bootstrap_servers=bootstrap.split(","), **settings, **more)


def _knock(bootstrap: str) -> None:
    reasons = []
    for broker in bootstrap.split(","):
        host, _, port = broker.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), KNOCK_S).close()
            return
        except OSError as error:
            reasons.append(f"{broker}: {error.strerror or error}")
    raise Retry(f"Kafka cannot be reached ({'; '.join(reasons)}).")
