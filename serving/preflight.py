"""Look at a checkpoint before any of it is loaded: headers and small files against a version that serves.

Enters: a sealed folder, and the folder of a version of the same policy that answers now (None for the first). Leaves:
nothing, or `Unfit` with one sentence. Reads the safetensors headers only (eight bytes of length, then JSON), so that a file
of any size is judged in milliseconds and nothing of it becomes memory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from contracts.errors import SlipstreamError

_FLOATS = {"F16", "BF16", "F32"}
_LONGEST_HEADER = 100 << 20
_MODEL, _ADAPTER = "model*.safetensors", "adapter_model.safetensors"
_ADAPTER_PREFIX = "base_model.model."


class Unfit(SlipstreamError):
    """This checkpoint must not be loaded: one sentence."""


class Tensor(NamedTuple):
    dtype: str
    shape: tuple[int, ...]


def check_model(folder: Path, live: Path | None) -> None:
    """A whole model: the same tensors and the same vocabulary as the live one."""
    tensors, config = headers(folder, _MODEL), _json(folder / "config.json")
    if live is None:
        return
    live_config = _json(live / "config.json")
    tied = ("lm_head.weight",) if config.get("tie_word_embeddings") else ()
    _compare(folder, _without(tensors, tied), _without(headers(live, _MODEL), tied))
    if config.get("vocab_size") != live_config.get("vocab_size"):
        raise Unfit(f"{folder} has vocab_size {config.get('vocab_size')}, {live_config.get('vocab_size')} is live")
    if _vocabulary(folder) != _vocabulary(live):
        raise Unfit(f"{folder} has another tokenizer than the live version: its ids mean other text")


def check_adapter(folder: Path, base: Path) -> None:
    """An adapter: each pair of tensors has a place in the base, and there is at least one."""
    adapter, known = headers(folder, _ADAPTER), headers(base, _MODEL)
    stems = {name.partition(".lora_")[0] for name in adapter if ".lora_" in name}
    matching = {stem for stem in stems if f"{stem.removeprefix(_ADAPTER_PREFIX)}.weight" in known}
    if not matching:
        raise Unfit(f"none of the {len(adapter)} tensors in {folder} belongs to its base, it would answer like the base")
    if stems - matching:
        raise Unfit(f"{folder} has an adapter for {min(stems - matching)}, which its base does not have")


def headers(folder: Path, pattern: str) -> dict[str, Tensor]:
    """Names, types and shapes of all tensors in the folder's files."""
    files = sorted(folder.glob(pattern))
    if not files:
        raise Unfit(f"{folder} has no {pattern}")
    found: dict[str, Tensor] = {}
    for file in files:
        found.update(_header(file))
    return found


def _header(file: Path) -> dict[str, Tensor]:
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(_LONGEST_HEADER, file.stat().st_size - 8):
                raise Unfit(f"{file} is not a whole safetensors file")
            content = json.loads(stream.read(length))
        entries = {name: entry for name, entry in content.items() if name != "__metadata__"}
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        if file.stat().st_size != 8 + length + end:
            raise Unfit(f"{file} has {file.stat().st_size} bytes, its header describes {8 + length + end}")
        return {name: Tensor(entry["dtype"], tuple(entry["shape"])) for name, entry in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unfit(f"{file} has no readable safetensors header: {error}") from error


def _compare(folder: Path, tensors: dict[str, Tensor], live: dict[str, Tensor]) -> None:
    shared = tensors.keys() & live.keys()
    if not shared:
        raise Unfit(f"none of the {len(tensors)} tensors in {folder} is one of the live version's")
    odd = sorted(tensors.keys() ^ live.keys())
    if odd:
        raise Unfit(f"{folder} and the live version differ in {len(odd)} tensors, the first is {odd[0]}")
    for name in sorted(shared):
        if tensors[name].shape != live[name].shape:
            raise Unfit(f"{folder}: {name} has shape {list(tensors[name].shape)}, live it is {list(live[name].shape)}")
        if tensors[name].dtype not in _FLOATS:
            raise Unfit(f"{folder}: {name} is {tensors[name].dtype}, one of {', '.join(sorted(_FLOATS))} was expected")


def _without(tensors: dict[str, Tensor], names: tuple[str, ...]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def _vocabulary(folder: Path) -> tuple[object, object, object]:
    content = _json(folder / "tokenizer.json")
    model = content.get("model")
    if not isinstance(model, dict):
        raise Unfit(f"{folder / 'tokenizer.json'} has no model in it")
    return model.get("vocab"), model.get("merges"), content.get("added_tokens")


def _json(file: Path) -> dict[str, object]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise Unfit(f"{file} is missing") from error
    except (OSError, ValueError) as error:
        raise Unfit(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise Unfit(f"{file} holds no object")
    return content
