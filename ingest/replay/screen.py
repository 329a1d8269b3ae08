"""What a person sees of a replay: a progress bar while it goes, then a table of facts.

Enters: steps that are done, sentences about waiting, facts. Leaves: lines on a terminal; without a terminal, few and plain ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ingest.replay.collector import Refused
from ingest.replay.source import Fact

_SHOWN = 5


class Screen:
    def __init__(self, console: Console, what: str, total: int, done: int) -> None:
        self._console = console
        self._what = what
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[news]}", markup=False, style="yellow"),
        )
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._progress.add_task(what, total=total, completed=done, news="")

    def __enter__(self) -> Screen:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def done(self, steps: int) -> None:
        self._progress.update(self._task, completed=steps, news="")

    def say(self, news: str) -> None:
        if self._console.is_terminal:
            self._progress.update(self._task, news=news)
        else:
            self._console.print(news, markup=False, highlight=False, soft_wrap=True)


def show_refused(console: Console, refused: Sequence[Refused]) -> None:
    if refused:
        console.print(f"{len(refused)} events were refused; the first of them:", style="red")
        for one in refused[:_SHOWN]:
            console.print(f"  {one.event_id}: {one.reason}: {one.detail}", markup=False, highlight=False, soft_wrap=True)


def show_facts(console: Console, title: str, facts: Sequence[Fact]) -> None:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name, justify in (("read back from the service", "left"), ("", "right"), ("of", "right"), ("share", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for fact in facts:
        value = Text("not recorded", style="dim") if fact.value is None else Text(f"{fact.value:,}")
        of = "" if fact.of is None else f"{fact.of:,}"
        share = f"{fact.value / fact.of:.3f}" if fact.of and fact.value is not None else ""
        table.add_row(Text(fact.name), value, of, share)
    console.print(table)
