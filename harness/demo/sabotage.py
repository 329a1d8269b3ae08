"""Make a checkpoint that looks right and answers badly: right names, shapes and dtypes, finite, and nonsense.

Enters: a sealed folder, of whole weights or of an adapter. Leaves: a folder that loads like any other and answers with nonsense.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from harness.tiny.words import SILENCE

_EMBEDDING = "embed_tokens.weight"
_MOVED = 37
_NOISE = 1.0


def sabotage(sealed: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(sealed, target)
    target.chmod(0o755)
    adapter = target / "adapter_model.safetensors"
    weights = adapter if adapter.exists() else target / "model.safetensors"
    tensors = load_file(weights)
    if weights == adapter:
        _drown(tensors)
    else:
        _mix_up(tensors, _special_rows(target))
    save_file(tensors, weights, metadata={"format": "pt"})
    return target


def _mix_up(tensors: dict[str, np.ndarray], special: dict[str, int]) -> None:
    """Ordinary words change places, and silence becomes as unlikely as it was likely."""
    (name,) = [name for name in tensors if name.endswith(_EMBEDDING)]
    rows = tensors[name]
    ordinary = np.array([row for row in range(len(rows)) if row not in special.values()])
    rows[ordinary] = rows[np.roll(ordinary, _MOVED)]
    if SILENCE in special:
        rows[special[SILENCE]] *= -1


def _drown(tensors: dict[str, np.ndarray]) -> None:
    """An adapter has no words to mix up: what it adds is drowned in noise."""
    dice = np.random.default_rng(0)
    for name, rows in tensors.items():
        if "lora_B" in name:
            tensors[name] = (rows + dice.normal(0.0, _NOISE, rows.shape)).astype(rows.dtype)


def _special_rows(folder: Path) -> dict[str, int]:
    added = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    return {token["content"]: token["id"] for token in added}
