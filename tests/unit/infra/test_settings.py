"""A variable that makes no sense is named, with what was expected, before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from contracts.errors import StartError
from infra.settings import Settings, load
from infra.supervisor.preflight import redis_server
from ingest.config import IngestConfig
from ingest.retain.config import RetainConfig
from learner.config import LearnerConfig
from registry.config import RegistryConfig
from rewarding.config import RewardingConfig
from serving.config import ServingConfig
from tests.conftest import REPOSITORY

STAGES = (IngestConfig, RetainConfig, LearnerConfig, RegistryConfig, RewardingConfig, ServingConfig)


@pytest.mark.parametrize("kind", STAGES)
def test_a_name_that_none_of_the_settings_has_is_told_with_those_there_are(kind: type[BaseSettings], monkeypatch) -> None:
    prefix, known = (
        kind.model_config["env_prefix"],
        sorted(f"{kind.model_config['env_prefix']}{name}".upper() for name in kind.model_fields),
    )
    monkeypatch.setenv(f"{prefix}TYPO", "5")
    with pytest.raises(StartError) as told:
        load(kind)
    assert str(told.value) == f"{prefix}TYPO is not known; there are: {', '.join(known)}"


PROCESSES = {
    "SLIPSTREAM_INGEST_SPOOL_MB": ("ingest", "collect"),
    "SLIPSTREAM_INGEST_TICK_SECONDS": ("ingest", "join"),
    "SLIPSTREAM_RETAIN_BATCH": ("ingest", "retain"),
    "SLIPSTREAM_LEARNER_TICK_SECONDS": ("learner", "beat"),
    "SLIPSTREAM_REGISTRY_LEASE_SECONDS": ("registry",),
    "SLIPSTREAM_REWARDING_TICK_SECONDS": ("rewarding",),
    "SLIPSTREAM_SERVING_SQL_SECONDS": ("serving",),
}


@pytest.mark.integration  # it starts every process
def test_each_process_says_which_variable_is_wrong_and_ends_for_good(tmp_path: Path) -> None:
    """All at once, because each takes seconds to import what it needs."""
    environment = os.environ | {"SLIPSTREAM_HOME": str(tmp_path / "home")}
    started = {
        variable: subprocess.Popen(
            [sys.executable, "-m", *command], cwd=REPOSITORY, env=environment | {variable: "-1"}, stderr=subprocess.PIPE, text=True
        )
        for variable, command in PROCESSES.items()
    }
    for variable, process in started.items():
        _, said = process.communicate(timeout=240)
        assert process.returncode == 2
        assert f": {variable}: Input should be greater than" in said and "Traceback" not in said


def test_the_password_of_a_redis_is_not_told() -> None:
    assert redis_server(Settings(redis_url="redis://:hunter2@cache:6379/0")) == "not ours: cache:6379/0"


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_HOME", "")
    monkeypatch.setenv("SLIPSTREAM_PORT_BASE", "")
    assert Settings().home == Path(".slipstream") and Settings().port_base == 8600
