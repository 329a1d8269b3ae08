"""From weights in memory, or in a folder, to a sealed folder and its record.

Enters: finite weights and a version name. Leaves: `<artifacts>/<policy>/<version>` with safetensors, config and tokenizer, and
a `Checkpoint`. The optimiser's state lies beside it in `optimizer/<version>`: it belongs to the next cycle, not to who serves.
What can go wrong: a full disk (`StartError`); a crash before the database knows leaves a folder that nothing names, which
`sweep` removes.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.checkpoint import Checkpoint, SealedFile
from contracts.errors import StartError
from infra import artifacts
from learner.ledger import Begun, manifest
from learner.stats import CycleStats

if TYPE_CHECKING:
    from learner.weights import Weights

logger = logging.getLogger(__name__)

_ORPHAN_AGE_S = 3600.0


def seal_cycle(
    root: Path, begun: Begun, weights: Weights, spec: str, stats: CycleStats, float32_megabytes: float, now: datetime
) -> Checkpoint:
    folder, files = artifacts.seal(root / begun.policy, begun.version, lambda target: weights.write(target, float32_megabytes))
    return Checkpoint(
        version=begun.version,
        policy=begun.policy,
        number=begun.number,
        parent=begun.parent.version,
        kind="full" if weights.kind == "full" else "lora",
        uri=str(folder.resolve()),
        files=files,
        samples=manifest(begun.samples),
        sample_count=len(begun.samples),
        spec=spec,
        cycle_id=begun.cycle_id,
        metrics=stats.figures(),
        created_at=now,
    )


def seal_folder(
    root: Path, policy: str, number: int, version: str, parent: str | None, write: Callable[[Path], None], now: datetime
) -> Checkpoint:
    """Weights that no cycle made: a policy's base, or what an operator brings. A whole folder of that name is taken as it is."""
    target = root / policy / version
    folder, files = (target, _sealed(target)) if target.is_dir() else artifacts.seal(root / policy, version, write)
    lora = any(file.name == "adapter_config.json" for file in files)
    if not any(file.name.endswith(".safetensors") for file in files):
        raise StartError(f"{folder} holds no .safetensors; other weight formats are not read")
    return Checkpoint(
        version=version,
        policy=policy,
        number=number,
        parent=parent,
        kind="lora" if lora else "full",
        uri=str(folder.resolve()),
        files=files,
        samples=None,
        sample_count=0,
        spec=None,
        cycle_id=None,
        metrics={},
        created_at=now,
    )


def sweep(root: Path, policy: str, known: Collection[str]) -> None:
    """Remove what crashes left: half-written folders, and whole ones that the database never heard of within an hour."""
    place = root / policy
    artifacts.sweep(place)
    artifacts.sweep(place / "optimizer")
    for folder in place.glob(f"{policy}-v*"):
        with contextlib.suppress(FileNotFoundError):
            if folder.name not in known and time.time() - folder.stat().st_mtime > _ORPHAN_AGE_S:
                logger.warning("removed %s: no checkpoint of that name was recorded", folder)
                shutil.rmtree(folder, ignore_errors=True)


def _sealed(folder: Path) -> tuple[SealedFile, ...]:
    return tuple(
        SealedFile(name=file.name, sha256=artifacts.digest(file), size=file.stat().st_size) for file in sorted(folder.iterdir())
    )
