"""One supervisor per home. The system holds the lock, so that of a dead process only a file is left, and that is no obstacle.

Enters: a home. Leaves: the right to run there. Goes wrong: `StartError` that names the process that has it, and the folder.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contracts.errors import StartError


def lock_file(home: Path) -> Path:
    return home / "run" / "lock"


@contextmanager
def hold(home: Path) -> Iterator[None]:
    file = lock_file(home)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StartError(f"cannot write {file}: {error.strerror}; choose another folder with --home") from error
    try:
        try:
            _take(handle)
        except BlockingIOError:
            raise runs_already(home, _written(file)) from None
        except OSError as error:
            raise StartError(
                f"the file system of {home} cannot lock files ({error.strerror}); choose a folder on a local disk with --home"
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def runs_already(home: Path, pid: int | None) -> StartError:
    return StartError(
        f"Slipstream runs already in {home} (process {pid or 'unknown'}); "
        f"stop it with `slipstream down --home {home}`, or choose another folder with --home"
    )


def _take(handle: int) -> None:
    """Try a few times: somebody who only looks (`holder`) has it for a moment."""
    for wait_s in (0.02, 0.05, 0.1):
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(wait_s)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def holder(home: Path) -> int | None:
    """The process that runs in this home, or None."""
    file = lock_file(home)
    try:
        handle = os.open(file, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError:
        return _written(file)
    finally:
        os.close(handle)


def _written(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
