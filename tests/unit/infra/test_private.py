"""What a deployment writes holds what people wrote: its owner alone can read it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

COMMANDS = {
    "a command": ("-m", "infra.cli", "keys", "create", "ide", "--scope", "producer"),
    "a process": ("-m", "learner", "bootstrap"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_nobody_else_can_read_it_though_the_shell_would_let_them(command: tuple[str, ...], tmp_path: Path) -> None:
    home = tmp_path / "home"
    environment = os.environ | {"SLIPSTREAM_HOME": str(home)}
    subprocess.run(
        [sys.executable, *command], cwd=REPOSITORY, env=environment, check=True, timeout=200, umask=0o022, capture_output=True
    )
    written = [home, *home.rglob("*")]
    assert len(written) > 1
    assert [(path.name, oct(path.stat().st_mode)) for path in written if path.stat().st_mode & 0o077] == []


def test_schemas_are_for_everybody(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "infra.cli", "schema", "--out", str(tmp_path / "schemas")]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=200, umask=0o022, capture_output=True)
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in (tmp_path / "schemas").rglob("*"))
