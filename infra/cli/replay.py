"""`slipstream replay`: recorded traffic goes through what runs, by a process of the stage that takes traffic in.

Enters: settings and the arguments of `python -m ingest replay`. Leaves: its exit code; Ctrl-C reaches it, and it stops in order.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

from infra.cli.chosen import as_it_runs
from infra.settings import Settings
from infra.supervisor.environment import child_environment


def replay(settings: Settings, arguments: Sequence[str]) -> int:
    environment = child_environment(as_it_runs(settings))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return subprocess.run((sys.executable, "-m", "ingest", "replay", *arguments), env=environment, check=False).returncode
