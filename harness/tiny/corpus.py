"""The demo's text: the Python standard library of the running interpreter, in three splits that never mix.

Enters: nothing but the interpreter's own `stdlib` folder. Leaves: `SourceFile`s of one split, in path order. A path
has the same split on every machine and interpreter, because the split hashes the path relative to the library.
Goes wrong: a file that is not UTF-8 is skipped; a text that an earlier split already holds is skipped in the later
one (base before traffic before held-out); an interpreter without its library as `.py` files raises `CorpusMissing`.
"""

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

Split = Literal["base", "traffic", "heldout"]

BASE_BELOW = 82  # percent of paths
TRAFFIC_BELOW = 91


class CorpusMissing(RuntimeError):
    """This interpreter ships no readable standard library (a zip or a frozen build)."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file: its path relative to the library, with forward slashes, and its whole text."""

    path: str
    text: str


def split_of(relative_path: str) -> Split:
    """The split of a path relative to the library, written with forward slashes."""
    digest = hashlib.sha256(relative_path.encode("utf-8")).digest()
    percent = int.from_bytes(digest[:8], "big") % 100
    if percent < BASE_BELOW:
        return "base"
    return "traffic" if percent < TRAFFIC_BELOW else "heldout"


def files(split: Split) -> list[SourceFile]:
    """Every file of one split, in path order."""
    return list(_all_files()[split])


@cache
def _all_files() -> dict[Split, tuple[SourceFile, ...]]:
    found: dict[Split, list[SourceFile]] = {split: [] for split in get_args(Split)}
    for file in _readable():
        found[split_of(file.path)].append(file)
    seen: set[bytes] = set()
    kept: dict[Split, tuple[SourceFile, ...]] = {}
    for split, candidates in found.items():
        texts = [hashlib.sha256(file.text.encode("utf-8")).digest() for file in candidates]
        kept[split] = tuple(f for f, text in zip(candidates, texts, strict=True) if text not in seen)
        seen.update(texts)
    if not kept["base"]:
        raise CorpusMissing(f"no Python files under {_library()}")
    return kept


def _readable() -> Iterator[SourceFile]:
    library = _library()
    paths = sorted((path.relative_to(library).as_posix(), path) for path in library.glob("**/*.py"))
    for relative, path in paths:
        if {"site-packages", "dist-packages"} & set(relative.split("/")):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        if text.strip():
            yield SourceFile(relative, text)


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib"))
