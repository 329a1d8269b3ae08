"""A recorded file, read whole: what it tells, and the digest by which it is known again.

Enters: a source and a file of JSON lines. Leaves: steps in the order in which they are replayed. What can go wrong: `StartError`
that names the file and the line; nothing has been told then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import StartError
from ingest.replay.source import BadLine, Line, Source, Told


@dataclass(frozen=True)
class Recording:
    told: Sequence[Told]
    digest: str


def read_recording(source: Source, file: Path) -> Recording:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise StartError(f"cannot read {file}: {error.strerror}") from error
    try:
        told = tuple(source.read(_line(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()))
    except BadLine as bad:
        raise StartError(f"{file}: {bad}") from bad
    if not told:
        raise StartError(f"{file} has no lines")
    return Recording(told, hashlib.sha256(content).hexdigest())


def _line(number: int, line: bytes) -> Line:
    try:
        parsed = json.loads(line)
    except ValueError as error:
        raise BadLine(number, f"not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise BadLine(number, f"expected an object, got {type(parsed).__name__}")
    return parsed
