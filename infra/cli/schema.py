"""`slipstream schema`: the JSON Schemas of what others may read or write.

Enters: a name, a folder, or the wish to have them checked. Leaves: files, or text on standard output; with `--check` 1 when a
released schema is broken or the exported files are not what the code says, and a line for each.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contracts import schema
from contracts.errors import UnknownName
from contracts.schema_change import breaks_of_all
from infra.cli.sentences import say


def show(name: str | None, out: Path | None, check: bool) -> int:
    known = schema.export()
    if name is not None and name not in known:
        raise UnknownName(f"no schema is called {name!r}; there are: {', '.join(known)}")
    if name is not None:
        print(schema.render(known[name]), end="")
    if out is not None:
        say(f"{len(schema.write(out))} schemas are in {out}")
    if check:
        return _check(out or schema.HERE)
    if name is None and out is None:
        _list(known)
    return 0


def _check(folder: Path) -> int:
    now = schema.export()
    wrong = [f"{folder}: {name} is not what the code says; write it with --out {folder}" for name in _stale(folder, now)]
    for version, then in schema.released().items():
        wrong += [f"breaks {version}: {what}" for what in breaks_of_all(then, now)]
    for line in wrong:
        print(line)
    if not wrong:
        print(f"{len(now)} schemas; those released as {', '.join(schema.released()) or 'nothing yet'} are kept.")
    return 1 if wrong else 0


def _stale(folder: Path, now: dict[str, schema.Schema]) -> list[str]:
    there = schema.read(folder)
    return sorted(name for name in {*now, *there} if now.get(name) != there.get(name))


def _list(known: dict[str, schema.Schema]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, found in known.items():
        table.add_row(Text(name), Text(str(found.get("description", "")).split("\n")[0]))
    Console().print(table)
