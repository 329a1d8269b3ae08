"""Opening one of kafka-python's clients.

Enters: addresses and settings. Leaves: a connected client. Goes wrong: `Retry` when nobody listens at any address, `StartError`
when TLS cannot come about.

It knocks first: a client (3.0.12) that finds no broker fails, but leaves its network thread behind, one for each try; and of a
certificate that is refused it tells nothing but a time-out. Of a refused password it tells nothing either, but logs it. At DEBUG it
logs its settings and requests, passwords included, so its loggers stay at INFO whatever the rest is set to.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Self

from kafka.errors import KafkaError

from contracts.errors import Retry, StartError
from infra.eventlog.broker_errors import REFUSED, explain

KNOCK_S = 3.0

OBJECTION_S = 0.3
"""A broker that misses this client's certificate says so only after the handshake."""


logging.getLogger("kafka").setLevel(logging.INFO)


def open_client(kind: Callable[..., Any], bootstrap: str, settings: Mapping[str, object], **more: object) -> Any:
    _knock(bootstrap, settings)
    with _Logged() as logged:
        try:
            return kind(bootstrap_servers=bootstrap.split(","), **settings, **more)
        except KafkaError as error:
            raise explain(logged.refusal or error, bootstrap) from error


class _Logged(logging.Handler):
    """Why the client could not connect, as it logs it on its network thread."""

    def __init__(self) -> None:
        super().__init__()
        self.refusal: KafkaError | None = None
        self._logger = logging.getLogger("kafka.net.manager")

    def emit(self, record: logging.LogRecord) -> None:
        args = record.args if isinstance(record.args, tuple) else ()
        self.refusal = next((each for each in args if isinstance(each, REFUSED)), self.refusal)

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_error: object) -> None:
        self._logger.removeHandler(self)


def _knock(bootstrap: str, settings: Mapping[str, object]) -> None:
    reasons = []
    for broker in bootstrap.split(","):
        host, _, port = broker.rpartition(":")
        host = host.strip("[]")
        try:
            with socket.create_connection((host, int(port)), KNOCK_S) as plain:
                if str(settings.get("security_protocol", "")).endswith("SSL"):
                    _shake_hands(plain, host, settings)
            return
        except (ssl.SSLEOFError, ConnectionResetError):
            reasons.append(f"{broker}: cut off; does this port speak {settings.get('security_protocol')}?")
        except ssl.SSLError as error:
            raise StartError(f"TLS with Kafka at {broker} failed: {error}") from error
        except OSError as error:
            reasons.append(f"{broker}: {error.strerror or error}")
    raise Retry(f"Kafka cannot be reached ({'; '.join(reasons)}).")


def _shake_hands(plain: socket.socket, host: str, settings: Mapping[str, Any]) -> None:
    """As the client will: the same authorities, certificate and checks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.get("ssl_check_hostname", True)
    if cafile := settings.get("ssl_cafile"):
        context.load_verify_locations(cafile)
    else:
        context.load_default_certs()
    if certificate := settings.get("ssl_certfile"):
        context.load_cert_chain(certificate, settings.get("ssl_keyfile"), settings.get("ssl_password"))
    with context.wrap_socket(plain, server_hostname=host) as secured:
        secured.settimeout(OBJECTION_S)
        try:
            secured.recv(1)
        except TimeoutError:
            return
