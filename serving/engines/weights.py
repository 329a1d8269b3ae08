"""Read a model folder: its configuration and its tensors, with an adapter merged in where there is one. Safetensors only.

Enters: a folder, and for an adapter the folder it lies over. Leaves: float32 tensors by name. What can go wrong: `BrokenModel`, one
sentence; an adapter that changes nothing or asks for something this merge does not do is broken too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from serving.engines.port import BrokenModel

ADAPTER_CONFIG = "adapter_config.json"
_PREFIX = "base_model.model."
_UNKNOWN = ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "fan_in_fan_out", "lora_bias")


def model_folder(folder: Path, base: Path | None) -> Path:
    """Where configuration and tokenizer lie: an adapter borrows those of its base."""
    if not (folder / ADAPTER_CONFIG).is_file():
        return folder
    if base is None:
        raise BrokenModel(f"{folder} is an adapter and nobody said what it lies over")
    return base


def read_json(file: Path) -> dict[str, object]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BrokenModel(f"{file} is missing") from error
    except (OSError, ValueError) as error:
        raise BrokenModel(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise BrokenModel(f"{file} holds {type(content).__name__}, an object was expected")
    return content


def read_tensors(folder: Path, base: Path | None) -> dict[str, Tensor]:
    tensors = _read(model_folder(folder, base), "model*.safetensors")
    if (folder / ADAPTER_CONFIG).is_file():
        _merge(tensors, read_json(folder / ADAPTER_CONFIG), _read(folder, "adapter_model.safetensors"), folder)
    return tensors


def _read(folder: Path, pattern: str) -> dict[str, Tensor]:
    files = sorted(folder.glob(pattern))
    if not files:
        raise BrokenModel(f"{folder} has no {pattern}")
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            tensors.update((name, tensor.float()) for name, tensor in load_file(file).items())
        except (SafetensorError, OSError) as error:
            raise BrokenModel(f"{file} cannot be read: {error}") from error
    return tensors


def _merge(tensors: dict[str, Tensor], config: Mapping[str, object], adapter: Mapping[str, Tensor], folder: Path) -> None:
    asked = [name for name in _UNKNOWN if config.get(name)]
    if asked:
        raise BrokenModel(f"{folder} uses {asked[0]}, which this engine does not merge")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or not isinstance(alpha, (int, float)):
        raise BrokenModel(f"{folder / ADAPTER_CONFIG} does not say r and lora_alpha")
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    merged = 0
    for name, down in adapter.items():
        stem, found, _ = name.partition(".lora_A.")
        if not found:
            if ".lora_B." not in name:
                raise BrokenModel(f"{folder} has the tensor {name}, which is no part of an adapter")
            continue
        target = f"{stem.removeprefix(_PREFIX)}.weight"
        up = adapter.get(name.replace(".lora_A.", ".lora_B."))
        if target not in tensors or up is None or tensors[target].shape != (up.shape[0], down.shape[1]):
            raise BrokenModel(f"{folder}: the adapter tensor {name} fits nothing in its base")
        tensors[target] = torch.addmm(tensors[target], up, down, alpha=scale)
        merged += 1
    if not merged:
        raise BrokenModel(f"{folder} has no adapter tensor at all, it would answer like its base")
