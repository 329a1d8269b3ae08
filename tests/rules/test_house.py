"""House rules that a machine can check: names, sizes, reasons, layers, and a README that tells the truth."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("contracts", "infra", "ingest", "rewarding", "learner", "registry", "serving", "harness")
GENERATED = ROOT / "infra" / "db" / "migrations" / "versions"
SOURCES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py") if file.parent != GENERATED)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LONGEST = 300


def test_no_other_distribution_owns_our_import_names():
    owners = packages_distributions()
    for package in PACKAGES:
        assert set(owners.get(package, [])) <= {"slipstream-rl"}, f"{package} also belongs to {owners[package]}"


def test_layers_hold():
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_is_short_explains_itself_and_has_a_name(file):
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST
    assert file.stem not in {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
    if text.strip() and file.name != "__init__.py":
        assert ast.get_docstring(ast.parse(text)), "a module says what it is for"


def test_each_dependency_has_a_reason():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    body = text[text.index("dependencies = [") : text.index("[project.optional-dependencies]")]
    for line in body.splitlines():
        if line.strip().startswith('"'):
            assert re.search(r"#\s*\S.{10,}", line), f"no reason: {line.strip()}"


def test_no_path_of_one_machine_stands_in_the_tree():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, listed):
        file = ROOT / name
        if file.suffix in {".py", ".md", ".yaml", ".yml", ".toml", ".html", ".js"} and file.is_file():
            found = re.search(r"(?<![\w./-])/(?:root|home/\w+|work)/", file.read_text(encoding="utf-8"))
            assert not found, f"{name}: {found.group(0) if found else ''}"


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_make_target_of_the_readme_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = set(re.findall(r"`?make ([a-z]+)", readme()))
    assert named and named <= targets, named - targets


def test_every_slipstream_command_of_the_readme_exists():
    from infra.cli.main import app

    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {group.name for group in app.registered_groups}
    named = set(re.findall(r"^slipstream ([a-z]+)", readme(), re.M))
    assert named and named <= commands, named - commands


def test_every_file_the_readme_names_exists():
    for path in re.findall(r"\]\((?!http)([^)#]+)", readme()):
        assert (ROOT / path).exists(), path


def test_every_folder_of_the_readmes_tree_exists():
    for name in re.findall(r"^([a-z]+)/\s", readme(), re.M):
        assert (ROOT / name).is_dir(), name
