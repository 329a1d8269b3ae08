"""The way of a version into memory: fetch, digests, preflight, load, probe, and only then it may be routed to.

Enters: version names. Leaves: the set of versions that are ready, and a `ReplicaRow` for each step. What can go wrong:
anything about the checkpoint ends in `SwapFailed` with one sentence and leaves what serves untouched; a database that is away
is no verdict on the version, which is tried again. Loading has a thread of its own, one version after the other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from contracts.checkpoint import Checkpoint
from contracts.errors import Poison, Retry, SlipstreamError
from contracts.policy import Policy
from infra.artifacts import verify
from infra.db.engine import reading
from infra.db.query import Engine as Database
from infra.db.tables.learner import CheckpointRow
from infra.policies import base_folder
from serving.engines.port import Engine
from serving.preflight import Unfit, check_adapter, check_model
from serving.probe import probe
from serving.replica import Replica

logger = logging.getLogger(__name__)


class SwapFailed(SlipstreamError):
    """The version cannot be served here: one sentence."""


class UnknownVersion(SlipstreamError):
    """No checkpoint of this policy has that name."""


class _Weights(NamedTuple):
    folder: Path
    base: Path | None


class _Failure(NamedTuple):
    error: SlipstreamError
    until: float


class Swap:
    """The versions of one policy on this gateway. Thread-safe."""

    def __init__(self, policy: Policy, engine: Engine, database: Database, replica: Replica, most: int, retry_s: float) -> None:
        self._policy = policy
        self._engine = engine
        self._database = database
        self._replica = replica
        self._most = most
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._used: dict[str, float] = {}
        self._models: dict[str, Path] = {}
        self._loading: dict[str, Future[None]] = {}
        self._failed: dict[str, _Failure] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"swap-{policy.name}")

    @property
    def ready(self) -> Collection[str]:
        """The versions that may be routed to."""
        return self._used.keys()

    def use(self, version: str) -> None:
        with self._lock:
            if version in self._used:
                self._used[version] = time.monotonic()

    def want(self, version: str) -> Future[None]:
        """Done when the version is ready; fails with `SwapFailed`, `UnknownVersion` or `Retry`. Asking again is harmless."""
        with self._lock:
            if version in self._loading:
                return self._loading[version]
            answer: Future[None] = Future()
            failure = self._failed.get(version)
            if version in self._used:
                answer.set_result(None)
            elif failure is not None and time.monotonic() < failure.until:
                answer.set_exception(failure.error)
            else:
                answer = self._loading[version] = self._worker.submit(self._load, version)
            return answer

    def evict(self, keep: Collection[str]) -> None:
        """Let go of what was not used for longest, beyond the number that fits; requests in flight end first."""
        with self._lock:
            spare = sorted((version for version in self._used if version not in keep), key=self._used.__getitem__)
            gone = spare[: max(0, len(self._used) - self._most)]
            for version in gone:
                del self._used[version], self._models[version]
                self._engine.free(version)
        for version in gone:
            self._replica.note(self._policy.name, version, "freed")

    def close(self) -> None:
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _load(self, version: str) -> None:
        begun = time.monotonic()
        try:
            weights = self._fetch(version, begun)
            load_ms = (time.monotonic() - begun) * 1000
            with self._lock:
                self._models[version] = weights.base or weights.folder
                self._used[version] = time.monotonic()
                self._failed.pop(version, None)
            self._replica.note(self._policy.name, version, "ready", load_ms=load_ms)
            logger.info("%s is ready after %.0f ms", version, load_ms)
        except SlipstreamError as error:
            wait_s = self._retry_s if isinstance(error, SwapFailed) else min(1.0, self._retry_s)
            with self._lock:
                self._failed[version] = _Failure(error, time.monotonic() + wait_s)
            raise
        finally:
            with self._lock:
                self._loading.pop(version, None)

    def _fetch(self, version: str, begun: float) -> _Weights:
        checkpoint = self._checkpoint(version)
        self._replica.note(self._policy.name, version, "loading")
        try:
            weights = self._verified(checkpoint)
            if weights.base is None:
                check_model(weights.folder, self._live())
            else:
                check_adapter(weights.folder, weights.base)
            self._engine.load(version, weights.folder, weights.base)
            probe(self._engine, version)
            return weights
        except Retry:
            raise
        except Exception as error:
            self._engine.free(version)
            reason = str(error) if isinstance(error, SlipstreamError) else f"{type(error).__name__}: {error}"
            logger.error(
                "%s cannot be served, what serves stays: %s", version, reason, exc_info=not isinstance(error, SlipstreamError)
            )
            self._replica.note(self._policy.name, version, "failed", reason, (time.monotonic() - begun) * 1000)
            raise SwapFailed(reason) from error

    def _verified(self, checkpoint: Checkpoint) -> _Weights:
        folder = _folder(checkpoint)
        verify(folder, checkpoint.files)
        if checkpoint.kind == "full":
            return _Weights(folder, None)
        parent = checkpoint.parent
        while parent is not None:
            ancestor = self._checkpoint(parent)
            if ancestor.kind == "full":
                verify(_folder(ancestor), ancestor.files)
                return _Weights(folder, _folder(ancestor))
            parent = ancestor.parent
        return _Weights(folder, base_folder(self._policy.model.base))

    def _live(self) -> Path | None:
        """A model that answers now, to compare with: the one used last."""
        with self._lock:
            return self._models[max(self._used, key=self._used.__getitem__)] if self._used else None

    def _checkpoint(self, version: str) -> Checkpoint:
        with reading(self._database) as session:
            row = session.get(CheckpointRow, version)
        if row is None or row.policy != self._policy.name:
            raise UnknownVersion(f"policy {self._policy.name} has no version {version!r}")
        try:
            return Checkpoint.decode(row.body)
        except Poison as poison:
            raise SwapFailed(f"the record of {version} cannot be read: {poison.detail}") from poison


def _folder(checkpoint: Checkpoint) -> Path:
    uri = urlsplit(checkpoint.uri)
    if uri.scheme not in ("file", "") or uri.netloc not in ("", "localhost"):
        raise Unfit(f"{checkpoint.version} lies at {checkpoint.uri}, only file:// can be fetched here")
    return Path(unquote(uri.path))
