"""A person's large payloads: values over 256 KiB, which lie in the artifact folder instead of the log.

Enters: the folder and what makes a value somebody's. Leaves: files, or fewer of them. A pointer in a log whose payload is gone
is buried by its reader as `payload_missing`: the person's words are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from contracts.topics import OUTCOMES, TURNS


def payloads(folder: Path, is_mine: Callable[[str, bytes], bool]) -> Iterator[tuple[Path, str, bytes]]:
    """File, topic and value of each that is this person's; turns first."""
    for topic in (TURNS.name, OUTCOMES.name):
        for file in sorted(folder.glob("??/*")):
            try:
                value = file.read_bytes()
            except OSError:
                continue
            if is_mine(topic, value):
                yield file, topic, value
