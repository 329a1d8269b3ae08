"""Events on disk while the collector cannot be reached: bounded, shared by processes, and there after this one is gone.

Enters: lines. Leaves: the same lines, oldest file first, one file to one process at a time. A file belongs to whoever renamed it:
`<microseconds>-<pid>-<n>.events` is free, `<...>.events~<host>~<pid>~<milliseconds>` is taken. A taken file whose process is gone
is free again, at once where that can be seen (same host), else after two minutes. What can go wrong: OSError when the disk is of
no use; a line that a kill cut short was never complete and is dropped as `damaged`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from slipstream_events.tally import Tally

ABANDONED_S = 120.0
_ENDING = ".events"
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_held: set[str] = set()
"""Names that this process holds: its pid alone does not tell it from an earlier process with the same one."""


def forget_held() -> None:
    """After a fork: what the parent holds is not this process's."""
    _held.clear()


class Claim:
    """A file that is this process's until `done` or `give_back`."""

    def __init__(self, path: Path, free: Path, lines: list[bytes]) -> None:
        self.lines = lines
        self._path = path
        self._free = free

    def done(self) -> None:
        self._path.unlink(missing_ok=True)
        _held.discard(self._path.name)

    def give_back(self, lines: Sequence[bytes]) -> None:
        """`lines`: those that are still to be sent."""
        if len(lines) < len(self.lines):
            rest = self._path.with_suffix(".rest")
            rest.unlink(missing_ok=True)
            _append(rest, lines)
            os.replace(rest, self._path)
        os.rename(self._path, self._free)
        _held.discard(self._path.name)


class DiskSpool:
    def __init__(self, folder: Path, tally: Tally, most_bytes: int, most_age_s: float, file_events: int) -> None:
        self._folder = folder
        self._tally = tally
        self._most_bytes = most_bytes
        self._most_age_s = most_age_s
        self._file_events = file_events
        self._numbers = itertools.count()
        self._filling: tuple[Path, int] | None = None

    def add(self, lines: Sequence[bytes]) -> None:
        """Synced to disk when it returns. Makes room by dropping the oldest."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(sum(map(len, lines)) + len(lines))
        if self._filling is not None:
            free, events = self._filling
            self._filling = None
            if events + len(lines) <= self._file_events and (taken := _take(free)) is not None:
                self._fill(taken, free, lines)
                self._filling = (free, events + len(lines))
                return
        free = self._folder / f"{time.time_ns() // 1000:017d}-{os.getpid()}-{next(self._numbers)}{_ENDING}"
        taken = _name_taken(free)
        _held.add(taken.name)
        self._fill(taken, free, lines)
        self._filling = (free, len(lines))

    def claim(self) -> Claim | None:
        """The oldest file that nobody holds, or None. Drops what is too old."""
        for file in self._free_files():
            taken = _take(file)
            if taken is None:
                continue
            if self._filling is not None and self._filling[0] == file:
                self._filling = None
            lines, damaged = _read(taken)
            self._tally.drop("damaged", damaged)
            claim = Claim(taken, file, lines)
            if lines and _age_s(file) <= self._most_age_s:
                return claim
            self._lose(claim, "too_old")
        return None

    def _fill(self, taken: Path, free: Path, lines: Sequence[bytes]) -> None:
        try:
            _append(taken, lines)
        finally:
            if taken.exists():
                os.rename(taken, free)
            _held.discard(taken.name)

    def _make_room(self, more_bytes: int) -> None:
        held_bytes = sum(size for _, size in self._sizes())
        if held_bytes + more_bytes <= self._most_bytes:
            return
        for file in self._free_files():
            if held_bytes + more_bytes <= self._most_bytes:
                return
            taken = _take(file)
            if taken is not None:
                held_bytes -= taken.stat().st_size
                self._lose(Claim(taken, file, _read(taken)[0]), "spool_full")

    def _lose(self, claim: Claim, reason: str) -> None:
        with self._tally.lock:
            self._tally.recovered += len(claim.lines)
        self._tally.drop(reason, len(claim.lines))
        claim.done()

    def _sizes(self) -> list[tuple[str, int]]:
        sizes = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                try:
                    sizes.append((entry.name, entry.stat().st_size))
                except FileNotFoundError:
                    continue
        return sizes

    def _free_files(self) -> list[Path]:
        """Oldest first; files of processes that are gone are free."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        free = set()
        for name in names:
            base, tilde, holder = name.partition("~")
            if not base.endswith(_ENDING):
                continue
            if tilde and (name in _held or _is_alive(holder)):
                continue
            if tilde:
                try:
                    os.rename(self._folder / name, self._folder / base)
                except OSError:
                    continue
            free.add(base)
        return [self._folder / name for name in sorted(free)]


def _name_taken(free: Path) -> Path:
    return free.with_name(f"{free.name}~{_HOST}~{os.getpid()}~{time.time_ns() // 1_000_000}")


def _take(free: Path) -> Path | None:
    """Only one of several processes succeeds in renaming a file."""
    taken = _name_taken(free)
    _held.add(taken.name)
    try:
        os.rename(free, taken)
    except OSError:
        _held.discard(taken.name)
        return None
    return taken


def _is_alive(holder: str) -> bool:
    host, _, rest = holder.partition("~")
    pid, _, taken_ms = rest.partition("~")
    if not (pid.isdecimal() and taken_ms.isdecimal()):
        return False
    if time.time() - int(taken_ms) / 1000 > ABANDONED_S:
        return False
    if host != _HOST or os.name == "nt":  # on Windows a signal 0 is not a question
        return True
    if int(pid) == os.getpid():
        return False  # not in _held: of an earlier process
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _age_s(file: Path) -> float:
    moment_us = file.name.partition("-")[0]
    return time.time() - int(moment_us) / 1e6 if moment_us.isdecimal() else 0.0


def _append(file: Path, lines: Sequence[bytes]) -> None:
    """All or nothing: what a full disk cut short is taken back."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        before = os.fstat(descriptor).st_size
        content = b"".join(line + b"\n" for line in lines)
        try:
            while content:
                content = content[os.write(descriptor, content) :]
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def _read(file: Path) -> tuple[list[bytes], int]:
    """Whole lines that are JSON, and how many are not."""
    whole, _, torn = file.read_bytes().rpartition(b"\n")
    lines, damaged = [], int(bool(torn))
    for line in whole.split(b"\n"):
        try:
            if line:
                json.loads(line)
                lines.append(line)
        except ValueError:
            damaged += 1
    return lines, damaged
