"""How a Kafka lets this process in: passed on whole, checked, and never told."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from contracts.errors import SlipstreamError, StartError
from infra.eventlog import access
from infra.eventlog.access import KafkaAccess
from infra.eventlog.broker import BrokerLog
from infra.eventlog.port import Entry
from infra.settings import load

PASSWORD = "sehr-geheim-4711"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("pem")

    def put(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(f"SLIPSTREAM_KAFKA_{name.upper()}", value.replace("~", str(tmp_path)))

    return put


def test_nothing_given_is_a_plain_connection_with_gzip():
    found = load(KafkaAccess)
    assert found.client_settings() == {"security_protocol": "PLAINTEXT", "ssl_check_hostname": True}
    assert found.codec == "gzip"


def test_everything_is_passed_on_under_the_clients_names(given, tmp_path):
    given(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="slipstream",
        sasl_plain_password=PASSWORD,
        ssl_cafile="~/ca.pem",
        ssl_certfile="~/cert.pem",
        ssl_keyfile="~/key.pem",
        ssl_password=PASSWORD,
        ssl_check_hostname="false",
        compression="none",
    )
    found = load(KafkaAccess)
    assert found.codec is None
    assert found.client_settings() == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "slipstream",
        "sasl_plain_password": PASSWORD,
        "ssl_cafile": str(tmp_path / "ca.pem"),
        "ssl_certfile": str(tmp_path / "cert.pem"),
        "ssl_keyfile": str(tmp_path / "key.pem"),
        "ssl_password": PASSWORD,
        "ssl_check_hostname": False,
    }
    names = set(KafkaAccess.model_fields) - {"compression"}
    assert names <= set(KafkaConsumer.DEFAULT_CONFIG) and names <= set(KafkaProducer.DEFAULT_CONFIG)
    assert PASSWORD not in repr(found) + str(found) + found.model_dump_json()


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"sasl_plain_password": PASSWORD}, "sasl_plain_password is set, but security_protocol is PLAINTEXT; set it to SASL_SSL"),
        ({"security_protocol": "SASL_SSL"}, "security_protocol SASL_SSL needs a sasl_mechanism: PLAIN, SCRAM-SHA-256"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_username": "me"},
            "sasl_mechanism PLAIN needs sasl_plain_password",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"},
            "sasl_mechanism PLAIN needs sasl_plain_password and sasl_plain_username",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", "sasl_plain_password": PASSWORD},
            "sasl_plain_password is set, but GSSAPI takes its identity from Kerberos",
        ),
        ({"ssl_cafile": "~/ca.pem"}, "ssl_cafile is set, but security_protocol is PLAINTEXT; set it to SSL or SASL_SSL"),
        ({"security_protocol": "SSL", "ssl_keyfile": "~/key.pem"}, "ssl_keyfile is set, but there is no ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_cafile": "~/none.pem"}, "none.pem cannot be read"),
        ({"security_protocol": "TLS"}, "SLIPSTREAM_KAFKA_SECURITY_PROTOCOL: Input should be 'PLAINTEXT', 'SSL'"),
        ({"compression": "brotli"}, "SLIPSTREAM_KAFKA_COMPRESSION: Input should be 'gzip', 'zstd'"),
        ({"sasl_password": PASSWORD}, "SLIPSTREAM_KAFKA_SASL_PASSWORD is not known; there are: SLIPSTREAM_KAFKA_COMPRESSION"),
    ],
)
def test_what_cannot_work_gets_one_sentence_without_secrets(given, variables, sentence):
    given(**variables)
    with pytest.raises(StartError) as told:
        load(KafkaAccess)
    words = str(told.value)
    assert sentence in words and "\n" not in words and PASSWORD not in words
    assert told.value.__cause__ is None


def test_a_codec_that_is_not_there_names_its_package(given, monkeypatch):
    monkeypatch.setattr(access.codec, "has_zstd", lambda: False)
    given(compression="zstd")
    with pytest.raises(StartError, match="compression zstd needs the package zstandard: install it, or set gzip"):
        load(KafkaAccess)


def test_a_password_is_in_no_log_and_no_error(given, caplog):
    given(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_plain_username="me", sasl_plain_password=PASSWORD)
    with caplog.at_level(logging.DEBUG), pytest.raises(SlipstreamError) as told:
        BrokerLog("127.0.0.1:1", load(KafkaAccess)).append("t", [Entry("k", b"v")])
    assert PASSWORD not in caplog.text + str(told.value)
