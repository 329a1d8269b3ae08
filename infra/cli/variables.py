"""Which `SLIPSTREAM_*` variables mean something: a typo is otherwise taken for no setting at all.

Enters: names of variables. Leaves: those that nobody reads, each with the known one that looks most like it. A stage's settings are
read from the text of its `config.py`, since nothing here imports a stage.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

import infra
from infra.eventlog.access import KafkaAccess
from infra.keys import OWN_KEY
from infra.secrets import KEYS, PASSWORD, REGISTER
from infra.settings import Settings
from infra.supervisor.environment import MARK

OURS = "SLIPSTREAM_"
STAGES = ("ingest", "rewarding", "learner", "registry", "serving", "harness")


def unknown(names: Iterable[str]) -> Mapping[str, str | None]:
    """Upper and lower case are one, as for the settings themselves."""
    there = [name.removeprefix(OURS) for name in known()]
    given = {name: name.upper().removeprefix(OURS) for name in sorted(names) if name.upper().startswith(OURS)}
    alike = {name: get_close_matches(rest, there, n=1, cutoff=0.75) for name, rest in given.items() if rest not in there}
    return {name: f"{OURS}{found[0]}" if found else None for name, found in alike.items()}


def known() -> set[str]:
    own = {f"{kind.model_config['env_prefix']}{name}".upper() for kind in (Settings, KafkaAccess) for name in kind.model_fields}
    return {KEYS, REGISTER, PASSWORD, OWN_KEY, MARK, *own, *_of_stages()}


def _of_stages() -> Iterator[str]:
    root = Path(infra.__file__).resolve().parent.parent
    for stage in STAGES:
        for pattern in ("config.py", "*/config.py"):
            for file in (root / stage).glob(pattern):
                yield from _settings(ast.parse(file.read_bytes()))


def _settings(module: ast.Module) -> Iterator[str]:
    """The fields of each class that says by which prefix they are found."""
    for found in module.body:
        prefixes = [
            ast.literal_eval(word.value)
            for word in ast.walk(found)
            if isinstance(word, ast.keyword) and word.arg == "env_prefix" and isinstance(word.value, ast.Constant)
        ]
        if isinstance(found, ast.ClassDef) and prefixes:
            for line in found.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield f"{prefixes[0]}{line.target.id}".upper()
