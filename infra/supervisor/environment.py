"""The environment of every child: the same settings, made absolute, small thread pools, and a mark by which orphans are known.

Enters: settings. Leaves: variables. Nothing can go wrong.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import infra
from infra.policies import policy_folder
from infra.settings import Settings

MARK = "SLIPSTREAM_RUN"
"""Holds the home folder. Children of children inherit it, so that whoever cleans up finds them after their parents are gone."""

_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def child_environment(settings: Settings) -> Mapping[str, str]:
    resolved = settings.model_copy(update={"home": settings.home.resolve(), "policies": policy_folder(settings)})
    variables = dict(os.environ)
    for name in Settings.model_fields:
        value = getattr(resolved, name)
        if value is not None:
            variables[f"SLIPSTREAM_{name.upper()}"] = str(value.resolve()) if isinstance(value, Path) else str(value)
    variables.update({pool: str(settings.threads) for pool in _POOLS})
    variables.setdefault("TOKENIZERS_PARALLELISM", "false")
    # glibc keeps an arena per thread and seldom gives it back; two are enough for one compute thread.
    variables.setdefault("MALLOC_ARENA_MAX", "2")
    variables["PYTHONUNBUFFERED"] = "1"
    variables.update(_import_path(variables.get("PYTHONPATH")))
    variables[MARK] = str(resolved.home)
    return variables


def _import_path(given: str | None) -> Mapping[str, str]:
    """A folder called `serving` where the command happens to be typed must not be taken for the stage."""
    root = Path(infra.__file__).resolve().parent.parent
    places = [] if root.name.endswith("-packages") else [str(root)]
    joined = os.pathsep.join([*places, *([given] if given else [])])
    return {"PYTHONSAFEPATH": "1"} | ({"PYTHONPATH": joined} if joined else {})
