"""A collector and a joiner as processes of their own, and recordings replayed to them."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from contracts.episode import Episode
from infra.db.engine import open_db, reading
from infra.db.query import select
from infra.db.tables.ingest import RevisionRow
from infra.policies import shipped_policies
from infra.settings import Settings
from infra.supervisor.environment import child_environment
from ingest.replay.main import replay

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = Path(__file__).parent / "recordings"


def data_folder() -> Path:
    """Where the whole recordings are: SLIPSTREAM_DATA, else beside the repository."""
    given = os.environ.get("SLIPSTREAM_DATA")
    return Path(given) if given else ROOT.parent / "shared" / "data"


@dataclass(frozen=True)
class Service:
    settings: Settings
    environment: dict[str, str]

    def replay(self, source: str, file: Path, policy: str, *more: str, stop: threading.Event | None = None) -> tuple[int, str]:
        """The exit code and what was written."""
        arguments = (source, str(file), "--policy", policy, "--speed", "0", "--wait", "90", *more)
        written = io.StringIO()
        code = replay(arguments, self.settings, stop or threading.Event(), Console(file=written, width=120))
        return code, written.getvalue()

    @property
    def database(self) -> str:
        return self.settings.database

    def episodes(self, policy: str) -> list[Episode]:
        """The newest revision of each, out of the rows."""
        newest: dict[str, RevisionRow] = {}
        with reading(open_db(self.database)) as session:
            for row in session.exec(select(RevisionRow).where(RevisionRow.policy == policy)).all():
                if row.episode_id not in newest or newest[row.episode_id].revision < row.revision:
                    newest[row.episode_id] = row
            return [Episode.decode(row.body) for row in newest.values()]


@contextmanager
def service(home: Path, policies: tuple[str, ...]) -> Iterator[Service]:
    folder = home / "policies" / "replay"
    shutil.copytree(shipped_policies("rewards"), home / "policies" / "rewards")
    shutil.copytree(shipped_policies("rollouts"), home / "policies" / "rollouts")
    folder.mkdir()
    for name in policies:
        text = (shipped_policies("replay") / "cups.yaml").read_text(encoding="utf-8")
        (folder / f"{name}.yaml").write_text(text.replace("name: cups", f"name: {name}"), encoding="utf-8")
    settings = Settings(home=home, policies=folder, port_base=_free() - 1)
    environment = {**child_environment(settings), "SLIPSTREAM_INGEST_TICK_SECONDS": "0.1"}
    with (home / "out.log").open("w") as out:
        running = [
            subprocess.Popen([sys.executable, "-m", "ingest", what], env=environment, stdout=out, stderr=subprocess.STDOUT)
            for what in ("collect", "join")
        ]
        try:
            _wait_until_it_answers(settings.collector_port, home / "out.log")
            yield Service(settings, environment)
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(60)


def _free() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_until_it_answers(port: int, log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError(f"the collector does not answer:\n{log.read_text()[-3000:]}")
