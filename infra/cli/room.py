"""A demo that was interrupted goes on; one that is finished, or that was asked for differently, makes room for a new one.

Enters: the demo's folder, locked by us, and what is asked for, in words. Leaves: a folder that belongs to what is asked for.
Reports of earlier demos are kept beside it, in `demo-reports/`. Goes wrong: `StartError` when the folder is not ours to change.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from contracts.errors import StartError
from infra.cli.sentences import say

_CHOICE = "choice.txt"


def make_room(home: Path, choice: str) -> None:
    report, asked = home / "report.json", home / _CHOICE
    try:
        if report.exists():
            kept = home.parent / "demo-reports" / f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(report.stat().st_mtime))}.json"
            kept.parent.mkdir(exist_ok=True)
            shutil.copyfile(report, kept)
            say(f"the last demo is finished (its report is kept as {kept}); this is a new one")
            _empty(home)
        elif asked.exists() and asked.read_text(encoding="utf-8") != choice:
            say(f"an unfinished demo ({asked.read_text(encoding='utf-8')}) makes room for this one ({choice})")
            _empty(home)
        home.mkdir(parents=True, exist_ok=True)
        asked.write_text(choice, encoding="utf-8")
    except OSError as error:
        raise StartError(f"cannot prepare {home}: {error.strerror}; is it yours to write?") from error


def _empty(home: Path) -> None:
    """All but `run/`, which holds the lock that we hold."""
    for entry in home.iterdir():
        if entry.is_dir() and entry.name != "run":
            shutil.rmtree(entry)
        elif entry.is_file():
            entry.unlink()
