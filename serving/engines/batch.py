"""The running batch of one version: requests join it, take a token a step, and leave it one by one.

Enters: requests. Leaves: each request's `Answer`, through its future, the moment it has ended. What can go wrong: a row whose
numbers are not finite ends with `error` and without log-probs; its neighbours do not notice.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from contracts.turn import Finish
from serving.engines.port import Answer, BadPrompt, Request
from serving.engines.sampling import draw
from serving.engines.tokenizer import VersionTokenizer

ADMITTED_AT_ONCE = 16
"""Prompts computed between two steps of those that run: more would hold these up."""


class Runner(Protocol):
    """A model with its cache. Row n is the n-th of those that run; `drop` puts the last one in the place of the dropped."""

    admits_midway: bool
    longest: int
    vocabulary: int

    @property
    def rows(self) -> int: ...

    def prefill(self, prompts: Sequence[Sequence[int]]) -> Tensor: ...

    def decode(self, tokens: Sequence[int]) -> Tensor: ...

    def drop(self, row: int, wipe: bool = False) -> None: ...


@dataclass(slots=True)
class _Row:
    request: Request
    future: Future[Answer]
    dice: random.Random
    room: int
    ids: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    kept: int = 0
    """Leading ids that are text."""


class Batch:
    """Not thread-safe but for `put`: the engine's thread steps it."""

    def __init__(self, runner: Runner, tokenizer: VersionTokenizer, stop: tuple[str, ...], size: int) -> None:
        self._runner = runner
        self._tokenizer = tokenizer
        self._stop = stop
        self._size = size
        self._waiting: deque[_Row] = deque()
        self._running: list[_Row] = []

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def put(self, request: Request) -> Future[Answer]:
        room = self._runner.longest - len(request.prompt_ids)
        if not request.prompt_ids:
            raise BadPrompt("prompt: it is empty, at least one token is needed")
        if room < 1:
            raise BadPrompt(f"prompt: it has {len(request.prompt_ids)} tokens, the model takes {self._runner.longest - 1}")
        if not 0 <= min(request.prompt_ids) <= max(request.prompt_ids) < self._runner.vocabulary:
            raise BadPrompt(f"prompt: token ids go from 0 to {self._runner.vocabulary - 1}")
        row = _Row(request, Future(), random.Random(request.sampling.seed), min(room, request.sampling.max_tokens))
        self._waiting.append(row)
        return row.future

    def step(self) -> None:
        """One token for each row that runs, then the first token of some that wait."""
        if self._running:
            self._advance(0, self._runner.decode([row.ids[-1] for row in self._running]))
        free = min(self._size - len(self._running), ADMITTED_AT_ONCE if self._runner.admits_midway else self._size)
        if self._waiting and free and (self._runner.admits_midway or not self._running):
            first = len(self._running)
            self._running += [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]
            self._advance(first, self._runner.prefill([row.request.prompt_ids for row in self._running[first:]]))

    def fail(self, error: BaseException) -> None:
        """Everything here ends with this error."""
        rows = [*self._running, *self._waiting]
        self._running.clear()
        self._waiting.clear()
        while self._runner.rows:
            self._runner.drop(self._runner.rows - 1, wipe=True)
        for row in rows:
            row.future.set_exception(error)

    def _advance(self, first: int, logits_BV: Tensor) -> None:
        rows = self._running[first:]
        drawn = draw(logits_BV, [row.request.sampling for row in rows], [row.dice.random() for row in rows])
        ended: list[tuple[int, Finish, str]] = []
        for i, row in enumerate(rows):
            if not drawn.finite[i]:
                ended.append((first + i, "error", ""))
                continue
            row.ids.append(drawn.tokens[i])
            row.logps.append(drawn.logps[i])
            end = self._end(row)
            if end is not None:
                ended.append((first + i, *end))
        # From the highest on: the row that takes a dropped one's place has been looked at already.
        for number, finish, text in reversed(ended):
            self._leave(number, finish, text)

    def _end(self, row: _Row) -> tuple[Finish, str] | None:
        """Why this row ends here and with what text, or None when it goes on."""
        token, request = row.ids[-1], row.request
        if token in self._tokenizer.ends:
            if token == self._tokenizer.silence and len(row.ids) == 1:
                return "silence", ""
            return self._said(row, "stop")
        row.kept = len(row.ids)
        if self._stop or request.stop:
            text = self._tokenizer.decode(row.ids)
            cuts = [at for stop in (*self._stop, *request.stop) if (at := text.find(stop)) >= 0]
            if cuts:
                return self._said(row, "stop", text[: min(cuts)])
        if request.on_token is not None:
            request.on_token(token)
        if request.abort is not None and request.abort.is_set():
            return "abort", self._tokenizer.decode(row.ids)
        if len(row.ids) >= row.room:
            return self._said(row, "length")
        return None

    def _said(self, row: _Row, finish: Finish, text: str | None = None) -> tuple[Finish, str]:
        said = self._tokenizer.decode(row.ids[: row.kept]) if text is None else text
        return (finish if said.strip() else "empty"), said

    def _leave(self, number: int, finish: Finish, text: str) -> None:
        row = self._running[number]
        last = self._running.pop()
        if last is not row:
            self._running[number] = last
        self._runner.drop(number, wipe=finish == "error")
        logps = None if finish == "error" else tuple(row.logps)
        row.future.set_result(Answer(row.request.version, tuple(row.ids), logps, text, finish))
