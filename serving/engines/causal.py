"""Any causal language model that transformers can build, in waves: rows start together, and end one by one.

Enters: the folder's configuration and tensors, then prompts and sampled tokens. Leaves: logits of the next token. Slower than
`serving.engines.llama`, which see; the two are interchangeable to the batch that uses them.

Prompts are padded on the left and masked, so that all rows append at the same place.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from serving.engines.port import BrokenModel


class CausalRunner:
    admits_midway = False

    def __init__(self, folder: Path, tensors: Mapping[str, Tensor]) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        try:
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            self._model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
            missing, unexpected = self._model.load_state_dict(dict(tensors), strict=False)
        except (ValueError, OSError, RuntimeError) as error:
            raise BrokenModel(f"{folder} cannot be built: {' '.join(str(error).split())[:300]}") from error
        absent = [name for name in missing if not (name == "lm_head.weight" and config.tie_word_embeddings)]
        if absent or unexpected:
            raise BrokenModel(f"{folder}: the tensor {(absent + unexpected)[0]} is {'missing' if absent else 'unknown'}")
        self._model.tie_weights()
        self.vocabulary = int(config.vocab_size)
        self.longest = int(getattr(config, "max_position_embeddings", 1 << 20))
        # transformers renamed it in 5.2x and drops the old name in 5.40.
        self._cache_name = "cache" if "cache" in inspect.signature(self._model.forward).parameters else "past_key_values"
        self._cache = None
        self._mask_BT = torch.zeros(0, 0, dtype=torch.long)

    @property
    def rows(self) -> int:
        return len(self._mask_BT)

    def prefill(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        if self.rows:
            raise RuntimeError("a wave is running; start the next one when all its rows have ended")
        longest = max(map(len, prompts))
        ids_BT = torch.tensor([[prompt[0]] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
        self._mask_BT = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        self._cache = None
        return self._forward(ids_BT, (self._mask_BT.cumsum(1) - 1).clamp(min=0))

    def decode(self, tokens: Sequence[int]) -> Tensor:
        self._mask_BT = torch.cat([self._mask_BT, self._mask_BT.new_ones(self.rows, 1)], dim=1)
        return self._forward(torch.tensor(tokens)[:, None], self._mask_BT.sum(1, keepdim=True) - 1)

    def drop(self, row: int, wipe: bool = False) -> None:
        last = self.rows - 1
        keep = torch.tensor([last if i == row else i for i in range(last)], dtype=torch.long)
        self._mask_BT = self._mask_BT[keep]
        if not last:
            self._cache = None
        elif self._cache is not None:
            self._cache.batch_select_indices(keep)

    def _forward(self, ids_BT: Tensor, position_BT: Tensor) -> Tensor:
        output = self._model(
            input_ids=ids_BT,
            attention_mask=self._mask_BT,
            position_ids=position_BT,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_name: self._cache},
        )
        self._cache = output[self._cache_name]
        logits_BV: Tensor = output.logits[:, -1]
        return logits_BV
