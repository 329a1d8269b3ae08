"""`python -m tests.bench.run`: every benchmark beside its baseline, in one process each, as a table and `.bench/results.json`.

A benchmark is a module of this folder with `STAGES` and `measure(seeds) -> list[Row]`; the folder is the list. No row fails the
run: a figure that misses its goal is shown as such.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
from pathlib import Path

from rich.console import Console
from rich.table import Table

import tests.bench
from tests.bench.row import Row

RESULTS = Path(".bench/results.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="one stage")
    parser.add_argument("--seeds", type=int, default=1, help="of benches that run the demo")
    asked = parser.parse_args()
    rows: list[Row] = []
    for info in pkgutil.iter_modules(tests.bench.__path__, "tests.bench."):
        module = importlib.import_module(info.name)
        if hasattr(module, "measure") and (not asked.only or asked.only in module.STAGES):
            rows += module.measure(asked.seeds)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([row.model_dump() for row in rows], indent=2) + "\n", encoding="utf-8")
    Console(width=150).print(_table(rows))


def _table(rows: list[Row]) -> Table:
    table = Table(title=f"Benchmarks ({RESULTS})", title_justify="left")
    for heading in ("name", "ours", "baseline", "ratio", "unit", "goal", ""):
        table.add_column(heading, justify="left" if heading in ("name", "unit", "goal", "") else "right")
    for row in rows:
        figures = (_figure(row.ours), _figure(row.baseline), _figure(row.ratio))
        table.add_row(row.name, *figures, row.unit, f"{row.judged} {row.sign} {row.goal:g}", "met" if row.met else "missed")
    return table


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}"


if __name__ == "__main__":
    main()
