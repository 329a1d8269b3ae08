"""The optimiser's state between two cycles, in `optimizer/<version>` beside the checkpoints.

Enters: an updater after its cycle. Leaves: its moments, for the cycle that goes on from that very version. Nothing depends on
it: where it is missing, or is another model's, the next cycle begins with a fresh optimiser.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from contracts.checkpoint import Checkpoint
from contracts.errors import StartError
from infra import artifacts
from learner.ledger import Begun
from learner.update import Updater

logger = logging.getLogger(__name__)

_FOLDER = "optimizer"
_FILE = "optimizer.safetensors"


def keep(root: Path, begun: Begun, updater: Updater, most: int) -> None:
    """Best effort; older ones go, the parent's stays for siblings."""
    place = root / begun.policy / _FOLDER
    try:
        artifacts.seal(place, begun.version, lambda target: save(updater, target))
    except (StartError, artifacts.BrokenSeal) as error:
        logger.warning("the optimiser's state was not kept: %s", error)
        return
    kept = sorted((folder for folder in place.iterdir() if folder.is_dir()), key=lambda folder: folder.name)
    for old in kept[:-most]:
        if old.name != begun.parent.version:
            shutil.rmtree(old, ignore_errors=True)


def resume(root: Path, parent: Checkpoint, updater: Updater) -> bool:
    return load(updater, root / parent.policy / _FOLDER / parent.version)


def save(updater: Updater, target: Path) -> None:
    """AdamW's moments and step counts, by parameter name."""
    tensors = {
        f"{name}/{key}": value.detach().clone().contiguous()
        for name, weight in updater.parameters.items()
        for key, value in updater.optimizer.state.get(weight, {}).items()
    }
    save_file(tensors, target / _FILE)


def load(updater: Updater, folder: Path) -> bool:
    """Go on where the parent's cycle stopped; False, and a fresh optimiser, where there is nothing that fits."""
    file = folder / _FILE
    if not file.is_file():
        return False
    tensors = load_file(file)
    state = {}
    for name, weight in updater.parameters.items():
        found = {key: tensors.get(f"{name}/{key}") for key in ("step", "exp_avg", "exp_avg_sq")}
        average = found["exp_avg"]
        if any(value is None for value in found.values()) or average is None or average.shape != weight.shape:
            return False
        state[weight] = found
    for weight, moments in state.items():
        updater.optimizer.state[weight] = moments
    return True
