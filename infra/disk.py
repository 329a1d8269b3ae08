"""What is written is on the disk, also after a power cut.

Enters: a file, or a folder, whose entries (names made, renamed, gone) are then on the disk. Goes wrong: OSError.
"""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
