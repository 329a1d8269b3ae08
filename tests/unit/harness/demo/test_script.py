"""The script of the demo: what comes next follows from what is to be seen, wherever it was interrupted."""

from __future__ import annotations

from typing import Any

import pytest

from harness.demo.overview import Overview
from harness.demo.script import Act, Script

LEARNED = ["sealed v1", "sealed v2"]


def seen(cycles: list[str], versions: dict[str, str]) -> Overview:
    stand: dict[str, Any] = {
        "now": "",
        "requests": 1,
        "rollout": None,
        "versions": [
            {"version": name, "number": n, "state": state, "reason": "", "share": 0.0, "figures": None}
            for n, (name, state) in enumerate(versions.items())
        ],
        "cycles": [{"state": state, "version": v, "samples": 1, "reason": None} for state, v in map(str.split, cycles)],
        "accounting": {"joined": 0, "late": 0, "waiting": 0, "refused": [], "counters": []},
    }
    return Overview.model_validate(stand)


@pytest.mark.parametrize(
    ("cycles", "versions", "sabotaged", "act"),
    [
        ([], {"v0": "live"}, None, Act.WATCH),
        (["sealed v1"], {"v0": "retired", "v1": "live"}, None, Act.WATCH),
        (["sealed v1", "sealed v2"], {"v0": "retired", "v1": "live", "v2": "canary"}, None, Act.WATCH),
        (["sealed v1", "sealed v2"], {"v0": "retired", "v1": "live"}, None, Act.WATCH),  # the registry will hear of v2
        (["sealed v1", "sealed v2"], {"v0": "retired", "v1": "retired", "v2": "live"}, None, Act.SABOTAGE),
        (["sealed v1", "skipped v2", "sealed v3"], {"v0": "retired", "v1": "retired", "v3": "live"}, None, Act.SABOTAGE),
        (["sealed v1", "sealed v2"], {"v1": "retired", "v2": "live"}, "v3", Act.WATCH),
        (["sealed v1", "sealed v2"], {"v1": "retired", "v2": "live", "v3": "canary"}, "v3", Act.WATCH),
        (["sealed v1", "sealed v2"], {"v1": "retired", "v2": "live", "v3": "rolled_back"}, "v3", Act.WATCH),
        ([*LEARNED, "sealed v4"], {"v1": "retired", "v2": "live", "v3": "rolled_back", "v4": "bench"}, "v3", Act.WATCH),
        ([*LEARNED, "sealed v4"], {"v1": "retired", "v2": "retired", "v3": "rolled_back", "v4": "live"}, "v3", Act.FINISH),
        ([*LEARNED, "sealed v4"], {"v1": "retired", "v2": "live", "v3": "rejected", "v4": "rolled_back"}, "v3", Act.FINISH),
    ],
)
def test_what_comes_next(cycles, versions, sabotaged, act):
    assert Script(cycles=3, sabotage_after=2).next(seen(cycles, versions), sabotaged) is act
