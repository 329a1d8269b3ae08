"""Logs of the processes: one file each, appended to, and what the last line says.

Enters: a home and a process's name. Leaves: a file to write to, a sentence to show. What cannot be read says nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import BinaryIO

ROTATE_BYTES = 10_000_000
_TAIL_BYTES = 8192
_POINTERS = ("(Background on this error", "For further information visit")
"""Last lines of errors that only say where to read on."""


def log_file(home: Path, name: str) -> Path:
    return home / "logs" / f"{name}.log"


def open_log_file(file: Path, rotate_bytes: int = ROTATE_BYTES) -> BinaryIO:
    """Append; what has grown too large becomes `<name>.log.1`, of which there is one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and file.stat().st_size > rotate_bytes:
        file.replace(file.with_name(file.name + ".1"))
    return file.open("ab")


def latest(file: Path, start: int = 0) -> str:
    """What the process said last, since byte `start`."""
    lines = _lines(file, start)
    return _message(lines[-1]) if lines else ""


def last_sentence(file: Path, start: int = 0) -> str:
    """Why it could not start: the last line written for people, else the last line."""
    lines = _lines(file, start)
    plain = [line for line in lines if not line.startswith(("{", " ", "\t", "Traceback"))]
    return plain[-1] if plain else latest(file, start)


def _lines(file: Path, start: int) -> list[str]:
    try:
        with file.open("rb") as stream:
            end = stream.seek(0, 2)
            stream.seek(max(start, end - _TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _message(line: str) -> str:
    """The sentence in a line of our logs, or the error in it; other lines as they are."""
    try:
        record = json.loads(line)
        lines = str(record["trace"] if "trace" in record else record["message"]).strip().splitlines()
        return next((line for line in reversed(lines) if not line.startswith(_POINTERS)), lines[-1])
    except (ValueError, KeyError, TypeError, IndexError):
        return line.strip()
