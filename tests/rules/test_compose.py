"""docker-compose.yml stays honest: it parses, every stage has its service, every command exists, every variable means something."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest
import yaml

from harness.bench.loop import addresses
from infra.secrets import KEYS, REGISTER
from infra.settings import Settings
from infra.supervisor import table

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
STAGES = {name: service for name, service in SERVICES.items() if service.get("command", ["?"])[0] == "python"}


def test_each_process_of_the_supervisor_has_a_service_with_the_same_command(tmp_path):
    own = {program.name: program.command[1:] for program in table.programs(Settings(home=tmp_path)) if program.name != table.REDIS}
    assert {name: tuple(service["command"][1:]) for name, service in STAGES.items()} == own


@pytest.mark.parametrize("name", sorted(STAGES))
def test_the_module_of_each_command_can_be_started(name):
    module = STAGES[name]["command"][2]
    assert importlib.util.find_spec(f"{module}.__main__") is not None


@pytest.mark.parametrize("name", sorted(STAGES))
def test_each_stage_reads_settings_that_exist(name, monkeypatch):
    environment = STAGES[name]["environment"]
    known = {f"SLIPSTREAM_{field.upper()}" for field in Settings.model_fields} | {KEYS, REGISTER}
    assert set(environment) <= known
    for variable, value in environment.items():
        monkeypatch.setenv(variable, re.sub(r"\$\{[^}]*\}", "secret", value))
    settings = Settings()
    assert settings.event_log.startswith("kafka://kafka:")
    assert settings.database.startswith("postgresql+psycopg://")
    assert not settings.runs_own_redis
    assert settings.mlflow.startswith("http://mlflow:")


def test_every_dependency_is_a_service_and_every_awaited_one_has_a_health_check():
    for name, service in SERVICES.items():
        for other, how in (service.get("depends_on") or {}).items():
            assert other in SERVICES, f"{name} waits for {other}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other], f"{name} waits for the health of {other}"


def test_the_bench_asks_the_gateway_and_not_itself(monkeypatch):
    monkeypatch.setenv("SLIPSTREAM_HOST", STAGES["bench"]["environment"]["SLIPSTREAM_HOST"])
    host, _, port = addresses(Settings()).gateway.removeprefix("http://").partition(":")
    assert f"127.0.0.1:{port}:{port}" in SERVICES[host]["ports"]


def test_what_a_server_keeps_lies_in_a_volume():
    kafka = SERVICES["kafka"]
    assert kafka["volumes"] == [f"kafka:{kafka['environment']['KAFKA_LOG_DIRS']}"]


def test_images_are_pinned_and_no_password_has_a_default():
    for name, service in SERVICES.items():
        assert re.fullmatch(r"[\w./-]+:\d[\w.-]*", service["image"]), f"{name}: {service['image']}"
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    for secret in re.findall(r"\$\{(\w*(?:PASSWORD|KEY))(.*?)\}", text):
        assert secret[1].startswith(":?"), f"{secret[0]} has a default"


def test_published_ports_are_for_this_host_only_and_those_of_the_settings():
    published = {port for service in SERVICES.values() for port in service.get("ports", [])}
    assert all(port.startswith("127.0.0.1:") for port in published)
    settings = Settings()
    for port in (settings.gateway_port, settings.collector_port, settings.console_port):
        assert f"127.0.0.1:{port}:{port}" in published


def test_what_the_image_copies_is_there():
    for line in (ROOT / "infra/compose/Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("COPY "):
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source


def test_the_example_of_secrets_names_each_that_is_asked_for():
    asked = set(re.findall(r"\$\{(\w+):\?", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    example = (ROOT / "infra/compose/env.example").read_text(encoding="utf-8")
    assert {line.split("=")[0] for line in example.splitlines() if line and not line.startswith("#")} == asked


def test_no_variable_of_this_shell_leaks_into_these_tests():
    for_tests = {"SLIPSTREAM_KAFKA", "SLIPSTREAM_POSTGRES", "SLIPSTREAM_DATA"}
    assert not [name for name in os.environ if name.startswith("SLIPSTREAM_") and name not in for_tests]
