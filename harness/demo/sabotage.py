"""Make a checkpoint that looks right and answers badly: right names, shapes and dtypes, finite, and nonsense.

Enters: a sealed folder. Leaves: a folder in which ordinary words have changed places in the embedding, so that the model reads
and writes one word for another, and in which silence has become as unlikely as it was likely: it chatters.
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


def sabotage(sealed: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(sealed, target)
    target.chmod(0o755)
    weights = target / "model.safetensors"
    tensors = load_file(weights)
    (name,) = [name for name in tensors if name.endswith(_EMBEDDING)]
    rows = tensors[name]
    special = _special_rows(target)
    ordinary = np.array([row for row in range(len(rows)) if row not in special.values()])
    rows[ordinary] = rows[np.roll(ordinary, _MOVED)]
    if SILENCE in special:
        rows[special[SILENCE]] *= -1
    save_file(tensors, weights, metadata={"format": "pt"})
    return target


def _special_rows(folder: Path) -> dict[str, int]:
    added = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    return {token["content"]: token["id"] for token in added}
