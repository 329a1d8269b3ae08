"""A place on this machine's disk for entries while the event log is away.

Enters: entries of one topic, written and synced before `add` returns. Leaves: the same entries in the same order, once the log
takes them again, also after this process was killed. What can go wrong: `SpoolFull` beyond a number of bytes, another OSError
when the disk is of no use. What the log will never take, and a line that the disk damaged, is put aside in `<topic>.refused`.

Many small files, oldest first, each locked by the process that has it: what a dead process leaves is adopted by the next one
that looks, what a living one holds is left alone. A line that a kill cut short was never acknowledged and is dropped; what a
kill leaves both in the log and here is appended twice, under the same id.

The log may take long to say that it is away, so nothing that a writer needs is held meanwhile: a file that is being handed over is
closed to writing, and what comes in the meantime begins the next one.
"""

from __future__ import annotations

import errno
import fcntl
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
from infra.disk import sync
from infra.eventlog.port import Entry

logger = logging.getLogger(__name__)

AT_ONCE = 500
FILE_BYTES = 4 * 2**20
"""A file is closed to writing at this size, so that draining makes room as it goes."""

HANDED_BYTES = 256 * 1024
"""An append ends with the line that reaches this size."""

LAST_WAIT_S = 0.5
"""So long a writer waits, while the log answers, for the last entries to be in it: else a steady stream would never let it end."""

ROUNDS = 20
"""So many files that were begun during a drain are part of it."""

_REFUSED = ".refused"

Append = Callable[[Sequence[Entry]], None]


class SpoolFull(OSError):
    """No room until the log takes entries again."""


@dataclass(eq=False, slots=True)
class _File:
    """`number`: 0 for an adopted one. `size`: bytes that are safely in it; `handed`: how many of them are dealt with."""

    number: int
    path: Path
    stream: BinaryIO
    size: int = 0
    handed: int = 0


class Spool:
    """Thread-safe. Neither `add` nor `must_queue` ever waits for the log, whatever `drain` does at the same time."""

    def __init__(self, folder: Path, name: str, topic: str, most_bytes: int = 2**30) -> None:
        self._folder = folder
        self._name = name
        self._topic = topic
        self._most_bytes = most_bytes
        self._begun = 0
        self._stamp_ns = 0
        self._bytes = 0
        self._lock = threading.Lock()
        self._draining = threading.Lock()
        self._last_tried = threading.Condition(self._lock)
        self._trying_last = False
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

    def must_queue(self) -> bool:
        """`holds`, for a writer that will append to the log itself if it may: the last entries are waited for, a moment."""
        with self._last_tried:
            if not self._last_tried.wait_for(lambda: not self._trying_last, LAST_WAIT_S):
                self._trying_last = False  # nobody waits for the same append again
            return self.holds

    def add(self, entries: Sequence[Entry]) -> None:
        """Raises `SpoolFull`, another OSError when the disk is of no use either, or ValueError; then none of them is here."""
        lines = b"".join(b"%s\t%s\n" % ((entry.key or "").encode(), entry.value) for entry in entries)
        if lines.count(b"\n") != len(entries) or b"\0" in lines or any("\t" in (entry.key or "") for entry in entries):
            raise ValueError("an entry must be one line, without zero bytes and with no tab in its key")
        with self._lock:
            if self._bytes + len(lines) > self._most_bytes:
                full = f"the spool of {self._topic} holds {self._bytes} bytes, its limit"
                raise SpoolFull(errno.EDQUOT, full, str(self._folder))
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
        """Hand everything to the log, oldest first, and delete it here; answers how many entries it took.

        Whatever `append` raises, nothing is lost. What is added meanwhile follows, though not for ever."""
        drained = 0
        with self._draining:
            self._adopt()
            newest = self._begun + ROUNDS
            while file := self._oldest(newest):
                drained += self._hand_over(file, append, answers=drained > 0)
        return drained

    def close(self) -> None:
        """Leave what is here to the next process."""
        with self._lock:
            for file in self._files:
                file.stream.close()
            self._files.clear()
            self._writing = None
            self._bytes = 0

    def _begin(self) -> _File:
        """Under its name only once it is locked: nobody ever takes it for a dead process's."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._begun += 1
        self._stamp_ns = max(time.time_ns(), self._stamp_ns + 1)  # names sort as they were begun, though the clock may be set back
        name = f"{self._stamp_ns:020d}-{self._name}-{self._begun}"
        draft = self._folder / f"{name}.draft"
        stream = draft.open("wb", buffering=0)
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
            path = draft.rename(self._folder / f"{name}.{self._topic}")
            sync(self._folder)
        except OSError:
            stream.close()
            raise
        file = self._writing = _File(self._begun, path, stream)
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
                found.append(_File(0, path, stream, status.st_size))
                self._bytes += status.st_size
            if found:
                logger.info("%d files of %s that an earlier process had spooled", len(found), self._topic)
                self._files.extendleft(reversed(found))

    def _oldest(self, newest: int) -> _File | None:
        """The next to hand over, closed to writing from now on."""
        with self._lock:
            if not self._files or self._files[0].number > newest:
                return None
            file = self._files[0]
            if file is self._writing:
                self._writing = None
            return file

    def _hand_over(self, file: _File, append: Append, answers: bool) -> int:
        """`answers`: the log took something a moment ago. Ends early when `close` gave the file up meanwhile."""
        drained = 0
        try:
            with file.path.open("rb") as reader:
                while lines := self._next_lines(reader, file, answers):
                    drained += self._hand_lines(file, lines, append)
                    answers = answers or drained > 0
            self._remove(file)
        finally:
            with self._last_tried:
                self._trying_last = False
                self._last_tried.notify_all()
        return drained

    def _next_lines(self, reader: BinaryIO, file: _File, answers: bool) -> list[bytes]:
        """As many as one append takes."""
        reader.seek(file.handed)
        lines: list[bytes] = []
        reached, enough = file.handed, min(file.size, file.handed + HANDED_BYTES)
        while len(lines) < AT_ONCE and reached < enough:
            line = reader.readline()
            if not line.endswith(b"\n"):
                break
            lines.append(line)
            reached += len(line)
        with self._lock:
            if file.stream.closed:
                return []
            if reached < enough and len(lines) < AT_ONCE:  # cut by a kill
                self._bytes -= file.size - reached
                file.size = reached
            self._trying_last = answers and reached == file.size and self._files[-1] is file
        return lines

    def _hand_lines(self, file: _File, lines: Sequence[bytes], append: Append) -> int:
        """One that the log will never take must not hold up those behind it."""
        entries = [entry for line in lines if (entry := _entry(line))]
        refused, why = lines[0], "its line is damaged"
        if len(entries) == len(lines):
            try:
                append(entries)
            except Poison as poison:
                refused, why = entries[0].value + b"\n", f"the log will never take it, {poison}"
                entries = []
        if len(entries) < len(lines):
            if len(lines) > 1:
                return sum(self._hand_lines(file, [line], append) for line in lines)
            self._refuse(file, refused, why)
        with self._lock:
            if not file.stream.closed:
                done = sum(map(len, lines))
                self._bytes -= done
                file.handed += done
        return len(entries)

    def _refuse(self, file: _File, line: bytes, why: str) -> None:
        """Beside the spool, where a person may look at it."""
        with (grave := self._folder / f"{self._topic}{_REFUSED}").open("ab", buffering=0) as stream:
            stream.write(line)
            os.fsync(stream.fileno())
        logger.error("an entry of %s that was spooled in %s is put aside in %s: %s", self._topic, file.path.name, grave, why)

    def _remove(self, file: _File) -> None:
        with self._lock:
            if file.stream.closed:
                return
            file.path.unlink(missing_ok=True)
            file.stream.close()
            self._files.popleft()


def put_aside(folder: Path) -> dict[str, int]:
    """How many entries of each topic lie in its `.refused`."""
    return {file.stem: file.read_bytes().count(b"\n") for file in sorted(folder.glob(f"*{_REFUSED}"))}


def _entry(line: bytes) -> Entry | None:
    """None for a line that `add` cannot have written so."""
    key, tab, value = line[:-1].partition(b"\t")
    if not tab or b"\0" in line:
        return None
    try:
        return Entry(key.decode() or None, value)
    except UnicodeDecodeError:
        return None


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
