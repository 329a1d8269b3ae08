"""How far a replay has come, so that one that was interrupted goes on where it was.

Enters: the home folder and the digest of the recording. Leaves: the number of steps that the service has for certain. A finished
replay leaves nothing behind: it begins anew when it is asked for again, which changes nothing, because ids count once. What can go
wrong: a file that cannot be read counts as none.
"""

from __future__ import annotations

import os
from pathlib import Path


class Progress:
    def __init__(self, home: Path, source: str, policy: str, digest: str) -> None:
        self._file = home / "replay" / f"{source}-{policy}-{digest[:16]}"

    def read(self) -> int:
        try:
            return max(0, int(self._file.read_text(encoding="ascii")))
        except (OSError, ValueError):
            return 0

    def write(self, steps: int) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        draft.write_text(str(steps), encoding="ascii")
        draft.replace(self._file)

    def clear(self) -> None:
        self._file.unlink(missing_ok=True)
