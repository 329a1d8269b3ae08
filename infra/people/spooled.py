"""What lies in the spools of this machine.

Enters: the spool folder (`infra.spool`) and what makes an entry somebody's. Leaves: those entries, or files without them. A file
that a living process holds is left to it: what is in there reaches the log within moments of its return, where it is met again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from contracts.topics import OUTCOMES, TURNS

_PUT_ASIDE = "refused"
"""What the log would never take lies beside the spool, in a file named after its topic."""

IsMine = Callable[[str, bytes], bool]


@dataclass(frozen=True, slots=True)
class Spooled:
    file: str
    topic: str
    value: bytes


def spooled(folder: Path, is_mine: IsMine) -> Iterator[Spooled]:
    """A person's entries, wherever they lie; what a living process holds can be read all the same."""
    for topic in (TURNS.name, OUTCOMES.name):
        for file in _files(folder, topic):
            try:
                content = file.read_bytes()
            except FileNotFoundError:
                continue  # handed to the log meanwhile
            for value in map(_value, _lines(content, file)):
                if is_mine(topic, value):
                    yield Spooled(file.name, topic, value)


def remove(folder: Path, is_mine: IsMine) -> tuple[int, int]:
    """Take a person's entries out; answers how many went, and how many a living process still holds."""
    removed = held = 0
    for topic in (TURNS.name, OUTCOMES.name):
        for file in _files(folder, topic):
            try:
                with file.open("r+b") as stream:
                    try:
                        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        held += sum(is_mine(topic, _value(line)) for line in _lines(stream.read(), file))
                        continue
                    removed += _rewrite(stream, file, topic, is_mine)
            except FileNotFoundError:
                continue
    return removed, held


def expire(folder: Path, before_s: float, gone: Callable[[str, bytes], None]) -> int:
    """Remove files that nobody wrote to since `before_s` (Unix) and no process holds; answers how many entries `gone` was told."""
    expired = 0
    for topic in (TURNS.name, OUTCOMES.name):
        for file in _files(folder, topic):
            try:
                with file.open("rb") as stream:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.fstat(stream.fileno()).st_mtime >= before_s or not os.fstat(stream.fileno()).st_nlink:
                        continue
                    for line in _lines(stream.read(), file):
                        gone(topic, _value(line))
                        expired += 1
                    file.unlink()
            except (FileNotFoundError, BlockingIOError):
                continue
    return expired


def _files(folder: Path, topic: str) -> list[Path]:
    return sorted([*folder.glob(f"*.{topic}"), *folder.glob(f"{topic}.{_PUT_ASIDE}")])


def _lines(content: bytes, file: Path) -> list[bytes]:
    """Whole lines; one that a kill cut short was never acknowledged."""
    whole, _, _ = content.rpartition(b"\n")
    return [line for line in whole.split(b"\n") if line]


def _value(line: bytes) -> bytes:
    """A spooled line has its key before a tab; one that was put aside may have neither, and JSON has no tab."""
    _, tab, value = line.partition(b"\t")
    return value if tab else line


def _rewrite(stream: BinaryIO, file: Path, topic: str, is_mine: IsMine) -> int:
    """Under the lock: a new file takes the name of the old one, which is overwritten before its space is given back."""
    content = stream.read()
    lines = _lines(content, file)
    kept = [line for line in lines if not is_mine(topic, _value(line))]
    if len(kept) == len(lines):
        return 0
    if kept:
        draft = file.with_name(f".{file.name}.draft")
        with draft.open("wb") as fresh:
            fcntl.flock(fresh, fcntl.LOCK_EX)
            fresh.write(b"".join(line + b"\n" for line in kept))
            fresh.flush()
            os.fsync(fresh.fileno())
            os.replace(draft, file)
    else:
        file.unlink()
    stream.seek(0)
    stream.write(b"\0" * len(content))
    stream.flush()
    os.fsync(stream.fileno())
    return len(lines) - len(kept)
