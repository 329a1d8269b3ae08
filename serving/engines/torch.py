"""The engine that runs in the gateway's own process: several versions in memory, one thread that steps their batches in turn.

Enters: folders and requests. Leaves: answers. Loading happens in the caller's thread and meets the batches only at the end, when
the new version is put beside the others. What can go wrong: see `serving.engines.port`; an unforeseen error inside a step
ends the requests of that version's batch and nothing else.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import torch

from contracts.policy import Policy
from contracts.turn import Sampling
from serving.engines import ENGINES
from serving.engines.batch import Batch, Runner
from serving.engines.causal import CausalRunner
from serving.engines.llama import LlamaRunner, fits
from serving.engines.port import Answer, BrokenModel, Busy, Message, NotLoaded, Request
from serving.engines.sampling import draw
from serving.engines.tokenizer import VersionTokenizer
from serving.engines.weights import model_folder, read_json, read_tensors

logger = logging.getLogger(__name__)

WAITING_PER_SEAT = 16
"""Requests that may wait for a version, per seat in its batch; more are told at once to come back later."""


@dataclass(slots=True)
class _Loaded:
    folder: Path
    base: Path | None
    runner: Runner
    tokenizer: VersionTokenizer
    batch: Batch
    leaving: bool = False


@ENGINES.add("torch")
class TorchEngine:
    def __init__(self, policy: Policy) -> None:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        self._policy = policy
        self._loaded: dict[str, _Loaded] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"engine-{policy.name}", daemon=True)
        self._thread.start()

    def load(self, version: str, folder: Path, base: Path | None = None) -> None:
        with self._changed:
            present = self._loaded.get(version)
            if present is not None:
                present.leaving = False
                return
        home = model_folder(folder, base)
        config = read_json(home / "config.json")
        tokenizer = VersionTokenizer(home, self._policy.template, config)
        runner = _runner(folder, base)
        batch = Batch(runner, tokenizer, self._policy.template.stop, self._policy.serving.batch)
        with self._changed:
            self._loaded.setdefault(version, _Loaded(folder, base, runner, tokenizer, batch))

    def free(self, version: str) -> None:
        with self._changed:
            if version in self._loaded:
                self._loaded[version].leaving = True
                self._changed.notify()

    def versions(self) -> frozenset[str]:
        with self._changed:
            return frozenset(name for name, loaded in self._loaded.items() if not loaded.leaving)

    def generate(self, request: Request) -> Future[Answer]:
        with self._changed:
            loaded = self._get(request.version)
            if loaded.batch.waiting >= WAITING_PER_SEAT * self._policy.serving.batch:
                raise Busy(f"{loaded.batch.waiting} requests wait for {request.version} already")
            future = loaded.batch.put(request)
            self._changed.notify()
        return future

    def score(self, version: str, prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> list[float]:
        with self._changed:
            loaded = self._get(version)
        plain, ids = Sampling(temperature=1.0), [*prompt_ids, *completion_ids]
        logps: list[float] = []
        with torch.inference_mode():
            runner = _runner(loaded.folder, loaded.base)
            for end in range(len(prompt_ids), len(ids)):
                logits_1V = runner.prefill([ids[:end]])
                runner.drop(0)
                logps.append(float(logits_1V.log_softmax(1)[0, ids[end]]))
                if not draw(logits_1V, [plain], [0.5]).finite[0]:
                    raise BrokenModel(f"{loaded.folder} gives logits that are not finite")
        return logps

    def encode(self, version: str, text: str) -> list[int]:
        return self._tokenizer(version).encode(text)

    def encode_chat(self, version: str, messages: Sequence[Message]) -> list[int]:
        return self._tokenizer(version).encode_chat(messages)

    def decode(self, version: str, ids: Sequence[int]) -> str:
        return self._tokenizer(version).decode(ids)

    def longest(self, version: str) -> int:
        with self._changed:
            return self._get(version).runner.longest

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout=30)

    def _tokenizer(self, version: str) -> VersionTokenizer:
        with self._changed:
            return self._get(version).tokenizer

    def _get(self, version: str) -> _Loaded:
        loaded = self._loaded.get(version)
        if loaded is None or loaded.leaving:
            raise NotLoaded(f"version {version} is not loaded")
        return loaded

    def _run(self) -> None:
        with torch.inference_mode():
            while (busy := self._next()) is not None:
                for version, batch in busy:
                    try:
                        batch.step()
                    except Exception as error:
                        logger.exception("a step of %s failed, its requests end here", version)
                        with self._changed:
                            batch.fail(BrokenModel(f"version {version} failed while answering: {error}"))

    def _next(self) -> list[tuple[str, Batch]] | None:
        """The batches with work, waiting for some; None when the engine closes."""
        with self._changed:
            while True:
                for version in [name for name, loaded in self._loaded.items() if loaded.leaving and not loaded.batch.busy]:
                    del self._loaded[version]
                busy = [(version, loaded.batch) for version, loaded in self._loaded.items() if loaded.batch.busy]
                if busy:
                    return busy
                if self._closing:
                    return None
                self._changed.wait()


def _runner(folder: Path, base: Path | None) -> Runner:
    home = model_folder(folder, base)
    config, tensors = read_json(home / "config.json"), read_tensors(folder, base)
    if not fits(config):
        return CausalRunner(home, tensors)
    try:
        return LlamaRunner(config, tensors)
    except (KeyError, RuntimeError, ValueError, TypeError) as error:
        raise BrokenModel(f"the tensors of {folder} do not fit its config.json: {' '.join(str(error).split())[:200]}") from error
