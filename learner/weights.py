"""A policy's weights between disk and memory: full models and LoRA adapters.

Enters: a sealed folder. Leaves: a causal LM in float32 with the trainable parts marked; later, the files of the next version.
An adapter is always relative to the policy's version 0, so a version of a LoRA policy needs that folder and its own, and no
chain. What can go wrong: `BrokenSeal` when the parent's files are not what was sealed, `StartError` when peft is not installed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from contracts.checkpoint import Checkpoint
from contracts.errors import StartError
from contracts.policy import Model
from infra.artifacts import verify
from learner.admit import Readable
from learner.base import copy_alongside


class Weights:
    """`causal` is what runs; `kind` says how its next version is written."""

    def __init__(self, causal: PreTrainedModel, adapter: Any | None, folder: Path, stored: torch.dtype) -> None:
        self.causal = causal
        self._adapter = adapter
        self._folder = folder
        self._stored = stored

    @property
    def kind(self) -> str:
        return "full" if self._adapter is None else "lora"

    def write(self, target: Path, float32_megabytes: float) -> None:
        if self._adapter is not None:
            self._adapter.save_pretrained(str(target), safe_serialization=True)
            (target / "README.md").unlink(missing_ok=True)
        else:
            size = sum(weight.numel() for weight in self.causal.parameters()) * 4 / 1e6
            dtype = torch.float32 if size <= float32_megabytes else self._stored
            self.causal.to(dtype).save_pretrained(str(target), max_shard_size="1000GB")
        copy_alongside(self._folder, target)


def load(parent: Checkpoint, root: Checkpoint, model: Model) -> Weights:
    """`root` is the policy's version 0; for full weights only the parent is read."""
    folder = Path(parent.uri)
    verify(folder, parent.files)
    if model.kind == "full":
        causal, stored = _load_causal(folder)
        return Weights(causal, None, folder, stored)
    base = Path(root.uri)
    verify(base, root.files)
    causal, stored = _load_causal(base)
    try:
        from peft import LoraConfig, PeftModel, get_peft_model
    except ImportError as error:
        raise StartError("LoRA needs peft; install slipstream-rl[smollm2]") from error
    if parent.kind == "lora":
        adapted = PeftModel.from_pretrained(causal, str(folder), is_trainable=True)
    else:
        shape = LoraConfig(
            r=model.lora_rank,
            lora_alpha=2 * model.lora_rank,
            lora_dropout=0.0,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )
        torch.manual_seed(parent.number)
        adapted = get_peft_model(causal, shape)
    for adapter in adapted.peft_config.values():
        adapter.base_model_name_or_path = root.version
    return Weights(adapted.get_base_model(), adapted, base, stored)


def readable(folder: Path) -> Readable:
    """From the config alone, before any weight is read."""
    text = AutoConfig.from_pretrained(str(folder), local_files_only=True).get_text_config()
    return Readable(vocabulary=text.vocab_size, positions=getattr(text, "max_position_embeddings", None) or sys.maxsize)


def _load_causal(folder: Path) -> tuple[PreTrainedModel, torch.dtype]:
    causal = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype="auto", use_safetensors=True, local_files_only=True, attn_implementation="sdpa"
    )
    stored = causal.dtype
    return causal.float(), stored
