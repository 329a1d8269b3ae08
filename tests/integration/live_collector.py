"""The real collector in a process of its own, in a folder of its own, to be killed and started again.

Enters: a folder. Leaves: its address, and what its log holds. What can go wrong: it does not become ready, and its log says why.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx

from contracts.outcome import Outcome, Refusal
from contracts.topics import OUTCOMES, REFUSALS, Topic
from infra.eventlog.open import open_log
from infra.settings import Settings
from tests.integration.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
READY_S = 60.0


class LiveCollector:
    def __init__(self, home: Path) -> None:
        self._port_base = free_port() - 1
        self._settings = Settings(home=home, policies=ROOT / "policies" / "demo", port_base=self._port_base)
        self._environment = os.environ | {
            "SLIPSTREAM_HOME": str(home),
            "SLIPSTREAM_POLICIES": str(ROOT / "policies" / "demo"),
            "SLIPSTREAM_PORT_BASE": str(self._port_base),
            "OMP_NUM_THREADS": "1",
        }
        self._output = home / "collector.log"
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port_base + 1}"

    def start(self) -> None:
        with self._output.open("ab") as output:
            command = [sys.executable, "-m", "ingest", "collect"]
            self._process = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=output, stderr=output)
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if httpx.get(f"{self.url}/health", timeout=1).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"the collector did not start: {self._output.read_text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Drained and closed: what it answered for is in the log."""
        if self._process is not None:
            deadline = time.monotonic() + READY_S
            while any(self._settings.spool.glob("*")):  # what a killed one spooled is handed over by itself
                assert time.monotonic() < deadline, "the spool was not drained"
                time.sleep(0.1)
            self._process.terminate()
            self._process.wait(60)

    def outcomes(self) -> list[Outcome]:
        """As they lie in the log, repeats included."""
        return [Outcome.decode(value) for value in self._read(OUTCOMES)]

    def refusals(self) -> list[Refusal]:
        return [Refusal.decode(value) for value in self._read(REFUSALS)]

    def _read(self, topic: Topic) -> list[bytes]:
        log = open_log(self._settings)
        log.ensure([topic])
        try:
            return [message.value for message in log.scan(topic.name)]
        finally:
            log.close()
