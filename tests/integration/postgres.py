"""A PostgreSQL server of the tests' own: a fresh cluster in a folder, on a free loopback port, ended with its folder.

The server refuses to run as root; then an unprivileged user runs it. Each test gets a database of its own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

import psutil
from sqlalchemy import create_engine, text

from tests.integration.ports import free_port

START_S = 180.0
USERS = ("postgres", "nobody")


def find_binaries() -> Path | None:
    """The folder of `initdb` and `postgres`: where a distribution puts the newest, else on the PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    if found := shutil.which("initdb"):
        folders.append(Path(found).resolve().parent)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


class Postgres:
    """`ours`: the tests started it, so they may kill it and start it again on the same folder and port."""

    def __init__(self, base_url: str | None, binaries: Path | None = None) -> None:
        self.ours = base_url is None
        self._binaries = binaries
        self._process: subprocess.Popen[bytes] | None = None
        self._user: str | None = None
        if base_url is None:
            self._folder = Path(tempfile.mkdtemp(prefix="slipstream-postgres-"))  # not below a folder that only root may enter
            self._port = free_port()
            self._prepare()
            self.start()
            base_url = f"postgresql+psycopg://slipstream@127.0.0.1:{self._port}/postgres"
        self.base_url = base_url

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"t_{uuid.uuid4().hex[:12]}"
        engine = create_engine(self.base_url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return f"{self.base_url.rpartition('/')[0]}/{name}"

    def start(self) -> None:
        assert self._binaries is not None
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": "",
            "max_connections": "60",
            "shared_buffers": "64MB",
            "autovacuum_naptime": "10s",
        }
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "server.log").open("ab") as errors:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._folder / "data", *flags],
                stdout=errors,
                stderr=errors,
                user=self._user,
                cwd="/",
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {(self._folder / 'server.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """A crash of the whole server: SIGKILL to the postmaster and all that it forked."""
        if self._process is not None:
            postmaster = psutil.Process(self._process.pid)
            postmaster.suspend()  # or it forks one more, who holds on to the memory that the next server wants
            for process in [*postmaster.children(recursive=True), postmaster]:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    pass
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # a fast shutdown: connections are closed
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.ours:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _prepare(self) -> None:
        assert self._binaries is not None
        if os.geteuid() == 0:
            self._user = next(name for name in USERS if _exists(name))
            shutil.chown(self._folder, self._user)
        subprocess.run(
            [self._binaries / "initdb", "-D", self._folder / "data", "-U", "slipstream", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            user=self._user,
            cwd="/",
        )

    def _answers(self) -> bool:
        try:
            engine = create_engine(f"postgresql+psycopg://slipstream@127.0.0.1:{self._port}/postgres")
            with engine.connect():
                return True
        except Exception:
            return False
        finally:
            engine.dispose()


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
