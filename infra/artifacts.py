"""Sealed folders: what is in one never changes, and a reader sees a whole one or none.

Enters: a function that writes files. Leaves: a folder named after its version with the digest of each file. Order: temporary
place, fsync, digest, rename, fsync of the parent; a crash in between leaves only a temporary folder, which `sweep` removes.
What can go wrong: `StartError` when the disk is full or not writable, `BrokenSeal` when a file is not what was sealed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from contracts.checkpoint import SealedFile
from contracts.errors import SlipstreamError, StartError
from infra.disk import sync

_CHUNK = 1 << 20
_TEMPORARY = ".tmp-"


class BrokenSeal(SlipstreamError):
    """A sealed file is missing or its bytes are not those that were sealed."""


def digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def seal(root: Path, name: str, write: Callable[[Path], None]) -> tuple[Path, tuple[SealedFile, ...]]:
    """Let `write` fill a temporary folder, then make it `root/name`. A name that is there already is never overwritten."""
    target = root / name
    if target.exists():
        raise BrokenSeal(f"{target} exists already; a sealed name is never used twice")
    temporary = root / f"{_TEMPORARY}{name}-{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write(temporary)
        files = []
        for file in sorted(temporary.iterdir()):
            sync(file)
            files.append(SealedFile(name=file.name, sha256=digest(file), size=file.stat().st_size))
        sync(temporary)
        temporary.rename(target)
        sync(root)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise StartError(f"cannot write {target}: {error.strerror or error}") from error
    return target, tuple(files)


def verify(folder: Path, files: Sequence[SealedFile]) -> None:
    """Raise `BrokenSeal` with one sentence unless each file is there, whole and unchanged."""
    for sealed in files:
        file = folder / sealed.name
        if not file.is_file():
            raise BrokenSeal(f"{file} is missing")
        if file.stat().st_size != sealed.size:
            raise BrokenSeal(f"{file} has {file.stat().st_size} bytes, {sealed.size} were sealed")
        if digest(file) != sealed.sha256:
            raise BrokenSeal(f"{file} has other bytes than were sealed")


def sweep(root: Path) -> int:
    """Remove what a crash left half-written; answers how many folders."""
    leftovers = list(root.glob(f"{_TEMPORARY}*"))
    for folder in leftovers:
        shutil.rmtree(folder, ignore_errors=True)
    return len(leftovers)
