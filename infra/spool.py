"""A place on this machine's disk for entries while the event log is away.

Enters: entries of one topic, written and synced before `add` returns. Leaves: the same entries in the same order, once the log
takes them again, also after this process was killed. What can go wrong: `SpoolFull` beyond a number of bytes, another OSError
when the disk is of no use.

Many small files, oldest first, each locked by the process that has it: what a dead process leaves is adopted by the next one
that looks, what a living one holds is left alone. A line that a kill cut short was never acknowledged and is dropped; what a
kill leaves both in the log and here is appended twice, under the same id.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from contracts.errors import Poison
from infra.eventlog.port import Entry

logger = logging.getLogger(__name__)

AT_ONCE = 500
FILE_BYTES = 4 * 2**20
"""A file is closed to writing at this size, so that draining makes room as it goes."""

LAST_BYTES = 256 * 1024
"""So little is handed over while writers wait: else a steady stream would keep the spool from ever being empty."""

Append = Callable[[Sequence[Entry]], None]


class SpoolFull(OSError):
    """No room until the log takes entries again."""


@dataclass(eq=False, slots=True)
class _File:
    """`size`: bytes that are safely in it; `handed`: how many of them the log has."""

    path: Path
    stream: BinaryIO
    size: int = 0
    handed: int = 0


class Spool:
    """Thread-safe. `add` and `drain` may run at the same time."""

    def __init__(self, folder: Path, name: str, topic: str, most_bytes: int = 2**30) -> None:
        self._folder = folder
        self._name = name
        self._topic = topic
        self._most_bytes = most_bytes
        self._numbers = itertools.count(1)
        self._bytes = 0
        self._lock = threading.RLock()
        self._draining = threading.Lock()
        self._files: deque[_File] = deque()
        self._writing: _File | None = None
        self._adopt()

    @property
    def holds(self) -> bool:
        """Whether there is something here that the log does not have yet, and behind which new entries must queue."""
        return bool(self._files)

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def add(self, entries: Sequence[Entry]) -> None:
        """Raises `SpoolFull`, or another OSError when this disk is of no use either; then none of the entries is here."""
        lines = b"".join(b"%s\t%s\n" % ((entry.key or "").encode(), entry.value) for entry in entries)
        if lines.count(b"\n") != len(entries):
            raise ValueError("an entry's value must be one line")
        with self._lock:
            if self._bytes + len(lines) > self._most_bytes:
                raise SpoolFull(errno.EDQUOT, f"{self._folder} holds {self._bytes} bytes of {self._topic}, its limit")
            file = self._writing or self._begin()
            try:
                _write(file, lines)
            except OSError:
                self._writing = None  # whatever is behind `size` in there counts for nothing
                raise
            file.size += len(lines)
            self._bytes += len(lines)
            if file.size >= FILE_BYTES:
                self._writing = None

    def drain(self, append: Append) -> int:
        """Hand everything to the log, oldest first, and delete it here; answers how many.

        Whatever `append` raises, nothing is lost."""
        drained = 0
        with self._draining:
            self._adopt()
            while self._files:
                drained += self._hand_over(self._files[0], append)
        return drained

    def close(self) -> None:
        """Leave what is here to the next process."""
        with self._lock:
            for file in self._files:
                file.stream.close()
            self._files.clear()
            self._writing = None

    def _begin(self) -> _File:
        """Under its name only once it is locked: nobody ever takes it for a dead process's."""
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{time.time_ns():020d}-{self._name}-{next(self._numbers)}"
        draft = self._folder / f"{name}.draft"
        stream = draft.open("wb", buffering=0)
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
            path = draft.rename(self._folder / f"{name}.{self._topic}")
            _sync_folder(self._folder)
        except OSError:
            stream.close()
            raise
        file = self._writing = _File(path, stream)
        self._files.append(file)
        return file

    def _adopt(self) -> None:
        with self._lock:
            ours = {file.path for file in self._files}
            found = []
            for path in sorted(set(self._folder.glob(f"*.{self._topic}")) - ours):
                try:
                    stream = path.open("rb")
                except FileNotFoundError:
                    continue  # another process on this machine was faster
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    stream.close()
                    continue
                status = os.fstat(stream.fileno())
                if not status.st_nlink:
                    stream.close()
                    continue
                found.append(_File(path, stream, status.st_size))
                self._bytes += status.st_size
            if found:
                logger.info("%d files of %s that an earlier process had spooled", len(found), self._topic)
                self._files = deque(sorted([*self._files, *found], key=lambda file: file.path.name))

    def _hand_over(self, file: _File, append: Append) -> int:
        drained = 0
        with file.path.open("rb") as reader:
            while True:
                with self._lock:
                    if file.size - file.handed <= LAST_BYTES:
                        while file.handed < file.size:
                            drained += self._hand_some(reader, file, append)
                        self._remove(file)
                        return drained
                drained += self._hand_some(reader, file, append)

    def _hand_some(self, reader: BinaryIO, file: _File, append: Append) -> int:
        reader.seek(file.handed)
        entries: list[Entry] = []
        reached = file.handed
        while len(entries) < AT_ONCE and reached < min(file.size, file.handed + LAST_BYTES):
            line = reader.readline()
            if not line.endswith(b"\n"):
                reached = file.size  # cut short by a kill
                break
            reached += len(line)
            key, _, value = line[:-1].partition(b"\t")
            entries.append(Entry(key.decode() or None, value))
        if entries:
            self._append(append, entries)
        with self._lock:
            self._bytes -= reached - file.handed
            file.handed = reached
        return len(entries)

    def _append(self, append: Append, entries: Sequence[Entry]) -> None:
        """One that the log will never take must not hold up those behind it: it is put aside, beside the spool."""
        try:
            append(entries)
        except Poison as poison:
            if len(entries) > 1:
                for entry in entries:
                    self._append(append, [entry])
                return
            logger.error("the log will never take an entry of %s, it is put aside in %s: %s", self._topic, self._folder, poison)
            with (self._folder / f"{self._topic}.refused").open("ab") as grave:
                grave.write(entries[0].value + b"\n")

    def _remove(self, file: _File) -> None:
        file.path.unlink(missing_ok=True)
        file.stream.close()
        self._files.remove(file)
        if self._writing is file:
            self._writing = None


def _write(file: _File, lines: bytes) -> None:
    """All of it and on the disk, or an error and the file as it was."""
    left = memoryview(lines)
    try:
        while left:
            left = left[file.stream.write(left) :]
        os.fsync(file.stream.fileno())
    except OSError:
        os.ftruncate(file.stream.fileno(), file.size)
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
