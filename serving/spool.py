"""A place on this machine's disk for turns while the event log is away.

Enters: entries, written and synced before `add` returns. Leaves: the same entries, once the log takes them again, also after
this process was killed. One file per process and filling, locked by the process that writes it, so that nobody drains it
meanwhile. A line that a kill cut short was never acknowledged and is dropped; what a kill leaves both in the log and here is
appended twice, under the same turn id.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from infra.eventlog.port import Entry

logger = logging.getLogger(__name__)

_AT_ONCE = 500

Append = Callable[[Sequence[Entry]], None]


class Spool:
    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._number = 0
        self._lock = threading.Lock()
        self._writing: BinaryIO | None = None

    @property
    def holds(self) -> bool:
        """Whether this process has put something here that the log does not have yet."""
        return self._writing is not None

    def add(self, entries: Sequence[Entry]) -> None:
        """Raises OSError when this disk is of no use either."""
        lines = b"".join(b"%s\t%s\n" % ((entry.key or "").encode(), entry.value) for entry in entries)
        with self._lock:
            if self._writing is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._number += 1
                self._writing = (self._folder / f"{self._name}-{self._number}.turns").open("ab")
                fcntl.flock(self._writing, fcntl.LOCK_EX)
            self._writing.write(lines)
            self._writing.flush()
            os.fsync(self._writing.fileno())

    def drain(self, append: Append) -> int:
        """Hand everything to the log and delete it here; answers how many. Whatever `append` raises, nothing is lost."""
        drained = 0
        for file in sorted(self._folder.glob("*.turns")):
            with self._lock:
                ours = self._writing is not None and Path(self._writing.name) == file
            if ours:
                drained += self._drain_ours(append, file)
            else:
                drained += self._drain_orphan(append, file)
        return drained

    def _drain_ours(self, append: Append, file: Path) -> int:
        """In two passes: what lies there now without holding up writers, then the rest and the file itself."""
        written = _entries(file.read_bytes())
        _append(append, written)
        with self._lock:
            rest = _entries(file.read_bytes())[len(written) :]
            _append(append, rest)
            if self._writing is not None:
                file.unlink()
                self._writing.close()
                self._writing = None
        return len(written) + len(rest)

    def _drain_orphan(self, append: Append, file: Path) -> int:
        try:
            with file.open("rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                entries = _entries(stream.read())
                _append(append, entries)
                file.unlink()
        except (BlockingIOError, FileNotFoundError):
            return 0  # another gateway on this machine has it
        logger.info("%d turns that an earlier process had spooled are in the log", len(entries))
        return len(entries)


def _append(append: Append, entries: Sequence[Entry]) -> None:
    for start in range(0, len(entries), _AT_ONCE):
        append(entries[start : start + _AT_ONCE])


def _entries(content: bytes) -> list[Entry]:
    whole, _, _ = content.rpartition(b"\n")
    return [Entry(key.decode() or None, value) for key, _, value in (line.partition(b"\t") for line in whole.split(b"\n") if line)]
