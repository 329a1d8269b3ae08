"""TLS and SASL against a real Kafka: who is let in, what those hear who are not, and that no password is ever logged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import SecretStr

from contracts.errors import Retry, StartError
from infra.eventlog.access import KafkaAccess
from infra.eventlog.open import open_log_at
from infra.eventlog.port import EventLog
from tests.contract.eventlog_acts import new_group, new_topic, numbered, take, values
from tests.integration.certificates import new_authority
from tests.integration.conftest import Kafka, find_kafka
from tests.integration.ports import free_port

pytestmark = pytest.mark.integration

PASSWORD = "nobody-may-read-this-4711"


class Secured(NamedTuple):
    """A broker that asks for a client's certificate at one address and for name and password at the other."""

    tls: str
    sasl: str
    plain: str
    folder: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    command = find_kafka()
    if command is None:
        pytest.skip("TLS is tried on a broker that the tests start themselves: there is no Kafka of theirs")
    folder = tmp_path_factory.mktemp("secured")
    authority = new_authority(folder, "authority")
    new_authority(folder, "stranger")
    server = authority.issue(folder, "server")
    authority.issue(folder, "client")
    plain, control, tls, sasl = range(first := free_port(4), first + 4)
    lines = [
        f"listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{control}"
        f",SSL://127.0.0.1:{tls},SASL_SSL://127.0.0.1:{sasl}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls},SASL_SSL://127.0.0.1:{sasl}",
        f"controller.quorum.voters=1@127.0.0.1:{control}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
        *("ssl.keystore.type=PEM", f"ssl.keystore.location={server}"),
        *("ssl.truststore.type=PEM", f"ssl.truststore.location={authority.file}"),
        "listener.name.ssl.ssl.client.auth=required",
        "sasl.enabled.mechanisms=PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' user_slipstream="{PASSWORD}"\\u003b',
    ]
    broker = Kafka(None, command, folder / "broker", port=plain, extra=";".join(lines))
    yield Secured(f"kafka://127.0.0.1:{tls}", f"kafka://127.0.0.1:{sasl}", f"kafka://127.0.0.1:{plain}", folder)
    broker.stop()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., EventLog]]:
    logs: list[EventLog] = []

    def open_with(url: str, **access: object) -> EventLog:
        logs.append(open_log_at(url, tmp_path / "payloads", KafkaAccess.model_validate(access)))
        return logs[-1]

    yield open_with
    for log in logs:
        log.close()


def goes_round(log: EventLog) -> None:
    topic = new_topic()
    log.ensure([topic])
    log.append(topic.name, numbered(30, keys=10))
    consumer = log.consumer(new_group(), [topic.name])
    assert sorted(values(take(consumer, 30))) == list(range(30))
    assert sorted(values(log.scan(topic.name))) == list(range(30))
    consumer.close()


def test_tls_with_a_certificate_on_both_sides(secured, opened):
    client = secured.folder / "client.pem"
    goes_round(opened(secured.tls, security_protocol="SSL", ssl_cafile=secured.folder / "authority.pem", ssl_certfile=client))


def test_name_and_password_over_tls_and_the_password_is_in_no_log(secured, opened, caplog):
    with caplog.at_level(logging.DEBUG):
        access = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "slipstream", "sasl_plain_password": SecretStr(PASSWORD)}
        log = opened(secured.sasl, security_protocol="SASL_SSL", ssl_cafile=secured.folder / "authority.pem", **access)
        goes_round(log)
    assert len(caplog.text) > 500 and PASSWORD not in caplog.text


def test_a_wrong_password_is_told_and_not_repeated(secured, opened, caplog):
    access = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "slipstream", "sasl_plain_password": SecretStr(PASSWORD[::-1])}
    log = opened(secured.sasl, security_protocol="SASL_SSL", ssl_cafile=secured.folder / "authority.pem", **access)
    with caplog.at_level(logging.DEBUG), pytest.raises(StartError, match="does not let this process in") as told:
        log.ends("any")
    assert PASSWORD[::-1] not in caplog.text + str(told.value)


def test_a_broker_that_somebody_else_vouches_for_is_refused(secured, opened):
    log = opened(secured.tls, security_protocol="SSL", ssl_cafile=secured.folder / "stranger.pem")
    with pytest.raises(StartError, match=r"TLS with Kafka at 127.0.0.1:\d+ failed: .*certificate verify failed"):
        log.ends("any")


def test_a_client_without_the_certificate_that_the_broker_wants(secured, opened):
    log = opened(secured.tls, security_protocol="SSL", ssl_cafile=secured.folder / "authority.pem")
    with pytest.raises(StartError, match=r"TLS with Kafka at 127.0.0.1:\d+ failed: .*certificate"):
        log.ends("any")


def test_tls_spoken_to_a_plain_port(secured, opened):
    log = opened(secured.plain, security_protocol="SSL", ssl_cafile=secured.folder / "authority.pem")
    with pytest.raises(Retry, match=r"127.0.0.1:\d+: cut off; does this port speak SSL\?"):
        log.ends("any")
