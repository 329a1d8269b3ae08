"""The demo as a benchmark: does it learn, how long does it take, what does it need, does a request fail?

The baseline of each learned figure is the same model before learning, on the same held-out questions; the goals are Cursor's
published changes. Means over the seeds; `SEEDS=5` for the figures of the README.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.row import Row

STAGES = frozenset({"harness"})
PORTS = 28_600


def measure(seeds: int) -> list[Row]:
    reports = [_demo(seed) for seed in range(seeds)]
    before, after = (lambda name, when=when: _mean(reports, when, name) for when in ("before", "after"))
    failed = sum(report["failed_requests"] for report in reports)
    return [
        Row.beside("harness.accept_rate", after("accept_rate"), before("accept_rate"), "of shown", 1.28, "higher"),
        Row.beside("harness.shown", after("shown"), before("shown"), "of requests", 0.79, "lower"),
        Row.beside("harness.reward", after("reward"), before("reward"), "per request", 2.0, "higher"),
        Row.beside(
            "harness.accepted_characters", after("accepted_characters"), before("accepted_characters"), "per request", 1.0, "higher"
        ),
        Row.alone("harness.demo_seconds", max(report["seconds"] for report in reports), "s", 300, "lower"),
        Row.alone("harness.demo_memory", max(report["peak_rss_mb"] for report in reports), "MB", 4000, "lower"),
        Row.alone(
            "harness.bad_exposed", max(report["bad"]["subjects_exposed_share"] for report in reports), "of people", 0.15, "lower"
        ),
        Row.alone("harness.failed_requests", failed, "requests", 0, "lower"),
    ]


def _demo(seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as home:
        command = [*(sys.executable, "-m", "infra.cli", "demo", "--seed", str(seed)), *("--home", home, "--port-base", str(PORTS))]
        subprocess.run(command, check=True, stdout=sys.stderr)
        found: dict[str, Any] = json.loads((Path(home) / "demo" / "report.json").read_text(encoding="utf-8"))
    print(f"seed {seed}: {json.dumps(found)}", file=sys.stderr)
    return found


def _mean(reports: list[dict[str, Any]], when: str, name: str) -> float:
    return statistics.fmean(report[when][name]["value"] for report in reports)
