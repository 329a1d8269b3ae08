"""Addresses of event logs, good and bad."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from contracts.errors import Retry, StartError
from infra.eventlog.open import open_log, open_log_at
from infra.settings import Settings


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url, file in ((f"sqlite:///{tmp_path}/deep/log.db", "deep/log.db"), ("sqlite:///near.db", "near.db")):
        open_log(Settings(home=tmp_path, log_url=url)).close()
        assert (tmp_path / file).is_file()


def test_a_broker_that_is_not_there_is_a_retry_that_names_each_address() -> None:
    log = open_log_at("kafka://127.0.0.1:1,127.0.0.1:2", Path("payloads"))
    with pytest.raises(Retry, match=r"127\.0\.0\.1:1: Connection refused; 127\.0\.0\.1:2: Connection refused"):
        log.ends("events")
    log.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "log.db",
        "sqlite://log.db",
        "sqlite:///",
        "kafka://",
        "kafka://host",
        "kafka://host:port",
        "kafka://a:1,",
        "redis://h:1",
    ],
)
def test_anything_else_says_what_was_expected(url: str) -> None:
    with pytest.raises(StartError, match="expected sqlite:///path/to/file or kafka://host:port"):
        open_log(Settings(log_url=url or "?"))


def test_who_opens_a_file_does_not_load_kafka(tmp_path: Path) -> None:
    opening = f"open_log_at('sqlite:///{tmp_path}/log.db', Path({str(tmp_path)!r}))"
    imports = "import sys; from pathlib import Path; from infra.eventlog.open import open_log_at"
    code = f"{imports}; {opening}; print('kafka' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


def test_a_password_in_an_address_that_is_not_understood_is_not_told() -> None:
    with pytest.raises(StartError, match=r"'kafka://…@host:port'") as told:
        open_log_at("kafka://me:hunter2@host:port", Path("payloads"))
    assert "hunter2" not in str(told.value)
