"""What must be right before anything starts, each with one sentence that says what is wrong and what to do.

Enters: settings. Leaves: a sentence about what is fine. Goes wrong: `Problem`, which is a `StartError` with its mend apart.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from contracts.errors import StartError
from infra.policies import base_folder, load_policies, policy_folder
from infra.settings import Settings
from infra.supervisor.ports import busy
from infra.supervisor.state import read_state
from infra.supervisor.table import redis_executable

OLDEST_PYTHON = (3, 11)
NEEDS_FREE_MB = 500

Check = Callable[[Settings], str]


class Problem(StartError):
    """What is wrong, and how to mend it."""

    def __init__(self, wrong: str, mend: str) -> None:
        super().__init__(f"{wrong}; {mend}")
        self.wrong = wrong
        self.mend = mend


def python_version(_: Settings) -> str:
    if sys.version_info < OLDEST_PYTHON:
        raise Problem(f"Python {sys.version_info.major}.{sys.version_info.minor} is too old", "install Python 3.11 or newer")
    return f"Python {'.'.join(map(str, sys.version_info[:3]))}"


def home_writable(settings: Settings) -> str:
    home = settings.home
    probe = home / "run" / f".probe-{os.getpid()}"
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        try:
            with probe.open("wb") as stream:
                stream.write(b"\0" * 65_536)
                stream.flush()
                os.fsync(stream.fileno())
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(home, error) from error
    return f"{home} can be written"


def same_place(settings: Settings) -> str:
    """Checkpoints are recorded by their absolute addresses."""
    state, here = read_state(settings.home), settings.home.resolve()
    before = here if state is None else Path(state.home).resolve()
    if before != here and settings.artifacts is None and settings.artifact_root.is_dir():
        raise Problem(
            f"this folder was {before} when its checkpoints were made, and they are recorded by that address",
            f"move it back, or let the old name lead here: ln -s {here} {before}",
        )
    return f"{here} is where it was made"


def cannot_write(home: Path, error: OSError) -> Problem:
    """What an error of the system means for somebody who chose `home`."""
    choose = "choose another folder with --home (SLIPSTREAM_HOME)"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return Problem(f"the disk or quota of {home} is full", f"make room or {choose}")
        case errno.ENOTDIR | errno.EEXIST:
            return Problem(f"{home} cannot be made: a part of this path is a file", f"remove it or {choose}")
        case errno.EROFS:
            return Problem(f"{home} is on a disk that is mounted read-only", choose)
        case errno.EACCES | errno.EPERM:
            return Problem(f"{home} may not be written by this user", f"change its owner or mode or {choose}")
    return Problem(f"{home} cannot be written: {error.strerror or error}", choose)


def disk_space(settings: Settings, needs_mb: float = NEEDS_FREE_MB) -> str:
    try:
        free_mb = shutil.disk_usage(settings.home).free / 1e6
    except OSError as error:
        raise cannot_write(settings.home, error) from error
    if free_mb < needs_mb:
        raise Problem(
            f"the disk of {settings.home} has {free_mb:.0f} MB free and {needs_mb:.0f} MB are needed",
            "make room or choose another folder with --home (SLIPSTREAM_HOME)",
        )
    return f"{free_mb / 1000:.1f} GB free"


def sqlite_locks(settings: Settings) -> str:
    """A write-ahead log needs shared memory and locks, which some network and container file systems lack."""
    probe = settings.home / "run" / f".probe-{os.getpid()}.db"
    local = "choose a folder on a local disk with --home (SLIPSTREAM_HOME)"
    try:
        connection = sqlite3.connect(probe, timeout=1.0, isolation_level=None)
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TABLE probe (x)")
            connection.execute("COMMIT")
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise Problem(f"SQLite cannot work in {settings.home} ({error})", local) from error
    finally:
        for file in probe.parent.glob(f"{probe.name}*"):
            file.unlink(missing_ok=True)
    if mode != "wal":
        raise Problem(f"the file system of {settings.home} has no locks that SQLite's write-ahead log can use", local)
    return "SQLite locks work"


def policies(settings: Settings) -> str:
    found = load_policies(settings)
    return f"{', '.join(found)} in {policy_folder(settings)}"


def base_weights(settings: Settings) -> str:
    found = load_policies(settings)
    for policy in found.values():
        base = base_folder(policy.model.base)
        if not base.is_file() and not (base.is_dir() and any(base.iterdir())):
            raise Problem(
                f"the base weights of policy {policy.name} are missing: {base} is neither a folder with files nor a .gguf file",
                f"put them there or set model: base in {policy_folder(settings) / policy.name}.yaml",
            )
    return ", ".join(str(base_folder(policy.model.base)) for policy in found.values())


def redis_server(settings: Settings) -> str:
    """The address of another one may have a password before its @."""
    return redis_executable() if settings.redis_url is None else f"not ours: {settings.redis_url.rpartition('@')[2]}"


CHECKS: Mapping[str, Check] = {
    "python": python_version,
    "home": home_writable,
    "place": same_place,
    "disk": disk_space,
    "sqlite": sqlite_locks,
    "policies": policies,
    "base weights": base_weights,
    "redis": redis_server,
}
"""In the order in which they make sense; ports come last, once the leftovers of an earlier run are gone."""


def check(settings: Settings) -> None:
    """Raise the first problem."""
    for found in CHECKS.values():
        found(settings)


def require(host: str, ports: Mapping[str, int]) -> None:
    """Raise unless all ports are free."""
    for what, port in ports.items():
        if (taken := busy(host, port)) is not None:
            raise Problem(
                f"port {port} on {host}, which the {what} needs, {taken}",
                "stop that program or move Slipstream with --port-base (SLIPSTREAM_PORT_BASE)",
            )
