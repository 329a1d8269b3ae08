"""A sabotaged folder looks right: same files, names, shapes and dtypes, finite; and it is another model."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from harness.demo.sabotage import sabotage
from harness.tiny import WEIGHTS


def looks_right_and_differs(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> bool:
    assert {name: (rows.shape, rows.dtype) for name, rows in before.items()} == {n: (r.shape, r.dtype) for n, r in after.items()}
    assert all(np.isfinite(rows).all() for rows in after.values())
    return any((before[name] != after[name]).any() for name in before)


def test_whole_weights(tmp_path):
    bad = sabotage(WEIGHTS, tmp_path / "bad")
    assert {file.name for file in bad.iterdir()} == {file.name for file in WEIGHTS.iterdir()}
    assert looks_right_and_differs(load_file(WEIGHTS / "model.safetensors"), load_file(bad / "model.safetensors"))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_an_adapter(tmp_path, dtype):
    good = tmp_path / "good"
    good.mkdir()
    tensors = {"layer.lora_A.weight": np.ones((2, 4), dtype), "layer.lora_B.weight": np.zeros((4, 2), dtype)}
    save_file(tensors, good / "adapter_model.safetensors")
    bad = sabotage(good, tmp_path / "bad")
    assert looks_right_and_differs(tensors, load_file(bad / "adapter_model.safetensors"))
