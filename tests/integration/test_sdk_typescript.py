"""The TypeScript SDK is built, its own tests pass, and what it tells a real collector arrives once, also when that is killed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.outcome import KINDS
from tests.integration.live_collector import ROOT, LiveCollector

pytestmark = pytest.mark.integration

SDK = ROOT / "ingest" / "sdk" / "typescript"
COUNT = 3_000


@pytest.fixture(scope="module")
def built() -> Path:
    """The package with its tests, compiled; skips where Node or the compiler cannot be had."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("no Node: neither `node` nor `npm` is on the PATH")
    major = int(_run("node", "--version").stdout.strip().lstrip("v").split(".")[0])
    if major < 20:
        pytest.skip(f"Node {major} is too old; the SDK needs 20")
    if not (SDK / "node_modules" / "typescript").is_dir():
        installed = _run("npm", "ci", "--no-audit", "--no-fund", check=False)
        if installed.returncode != 0:
            pytest.skip(f"npm cannot install TypeScript: {installed.stderr.strip().splitlines()[-1:]}")
    for step in ("build", "check", "build:test"):
        done = _run("npm", "run", "--silent", step, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return SDK / "build" / "test"


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[LiveCollector]:
    collector = LiveCollector(tmp_path / "home")
    collector.start()
    yield collector
    collector.kill()


def _run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=SDK, capture_output=True, text=True, timeout=300, check=check)


@pytest.mark.timeout(300)
def test_its_own_tests_pass(built: Path):
    files = [str(file) for file in sorted(built.glob("*.test.js"))]
    assert len(files) == 3
    done = _run("node", "--test", *files, check=False)
    assert done.returncode == 0, done.stdout[-6000:]


def test_the_package_has_what_it_needs_and_no_dependency(built: Path):
    package = json.loads((SDK / "package.json").read_text())
    assert "dependencies" not in package and "peerDependencies" not in package
    packed = json.loads(_run("npm", "pack", "--dry-run", "--json", "--ignore-scripts").stdout)[0]
    names = {file["path"] for file in packed["files"]}
    assert {"dist/index.js", "dist/index.d.ts", "dist/node.js", "README.md"} <= names
    assert not [name for name in names if name.startswith(("test", "src", "build"))]


def test_what_a_browser_loads_touches_nothing_of_node(built: Path):
    loaded, waiting = set(), ["index.js"]
    while waiting:
        name = waiting.pop()
        loaded.add(name)
        for module in re.findall(r'^(?:import|export|\}) .*?"([^"]+)";$', (SDK / "dist" / name).read_text(), re.M):
            assert module.startswith("./"), f"{name} imports {module}"
            if module[2:] not in loaded:
                waiting.append(module[2:])
    assert "node.js" not in loaded and "client.js" in loaded


@pytest.mark.timeout(240)
@pytest.mark.parametrize("killed", [False, True], ids=["undisturbed", "collector killed"])
def test_each_event_of_each_kind_arrives_once(built: Path, collector: LiveCollector, tmp_path: Path, killed: bool):
    command = ["node", str(built / "live.js"), collector.url, str(tmp_path / "spool"), str(COUNT)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    told: list[str] = []
    try:
        for line in program.stdout:
            if line.startswith("{"):
                figures = json.loads(line)
                continue
            told.append(line.strip())
            if killed and len(told) == COUNT // 3:
                collector.kill()
            if killed and len(told) == 2 * COUNT // 3:
                collector.start()
        assert program.wait(60) == 0
    finally:
        program.kill()
    collector.stop()

    assert figures["sent"] and figures["taken"] == figures["told"] == COUNT, figures
    assert figures["dropped"] == {} and figures["refused"] == 0
    assert (figures["retries"] > 0) == killed and (figures["spooled"] > 0) == killed
    arrived = collector.outcomes()
    assert len(told) == len(set(told)) == COUNT
    by_id = {outcome.event_id: outcome for outcome in arrived}
    assert set(by_id) == set(told)
    assert len(arrived) == COUNT or killed, "the same event lies in the log twice although nothing was resent"
    kinds = list(KINDS)
    for n, event_id in enumerate(told):
        outcome = by_id[event_id]
        assert outcome.happening.kind == kinds[n % len(kinds)] and outcome.turn_id == f"ep-ts-{n // 40}.1-0"
    assert collector.refusals() == []
