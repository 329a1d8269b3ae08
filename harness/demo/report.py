"""What the demo found out, as a file for machines and as a table for people.

Enters: figures before and after, what became of the bad checkpoint, the accounting. Leaves: `report.json` and rich tables. Figures
that were not measured are null, and the table says so.
"""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from contracts.checkpoint import Metric
from contracts.record import Record
from harness.demo.heldout import Figures

CURSOR_ACCEPTS = 0.28
CURSOR_SHOWN = -0.21


class Accounting(Record):
    """sent = joined + late + the sum of refused."""

    sent: int
    joined: int
    late: int
    refused: dict[str, int]

    @property
    def balances(self) -> bool:
        return self.sent == self.joined + self.late + sum(self.refused.values())


class Bad(Record):
    """The sabotaged checkpoint. `subjects_exposed_share`: of all developers, those who ever met it."""

    version: str
    state: str
    reason: str
    requests_until_rollback: int
    subjects_exposed_share: float


class Report(Record):
    seconds: float
    seed: int
    cycles: int
    promoted: int
    rolled_back: int
    requests: int
    failed_requests: int
    peak_rss_mb: float | None
    accounting: Accounting
    before: Figures
    after: Figures
    bad: Bad | None

    def change(self, name: str) -> float | None:
        """Relative change from before to after; None where there is nothing to divide by."""
        before: Metric = getattr(self.before, name)
        after: Metric = getattr(self.after, name)
        if before.value is None or after.value is None or before.value <= 0:
            return None
        return after.value / before.value - 1.0


def write(report: Report, file: Path) -> None:
    draft = file.with_suffix(".tmp")
    draft.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    os.replace(draft, file)


def show(report: Report, console: Console) -> None:
    console.print(Group(_learned(report), Text(), _service(report)))


def _learned(report: Report) -> Table:
    table = Table(
        title=f"Held-out files, fresh developers: {report.before.version} and {report.after.version} (95 % intervals)",
        caption="Cursor's figures are from its own product and users; these are simulated developers on Python's standard library.",
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("", "before", "after", "change", "Cursor"):
        table.add_column(heading, justify="left" if not heading else "right")
    rows = (
        ("accepted when shown", "accept_rate", f"{CURSOR_ACCEPTS:+.0%}"),
        ("shown", "shown", f"{CURSOR_SHOWN:+.0%}"),
        ("reward/request", "reward", ""),
        ("accepted chars/request", "accepted_characters", ""),
    )
    for words, name, published in rows:
        change = report.change(name)
        moved = "" if change is None else f"{change:+.0%}"
        table.add_row(words, _interval(getattr(report.before, name)), _interval(getattr(report.after, name)), moved, published)
    return table


def _service(report: Report) -> Table:
    table = Table(title="The service", title_justify="left", show_header=False)
    accounting = report.accounting
    refused = ", ".join(f"{number} {reason}" for reason, number in sorted(accounting.refused.items())) or "none"
    sums = f"{accounting.sent} = {accounting.joined} joined + {accounting.late} late + refused ({refused})"
    rows = [
        ("requests answered", f"{report.requests}, {report.failed_requests} failed"),
        ("learner cycles", f"{report.cycles}; {report.promoted} promoted, {report.rolled_back} rolled back or rejected"),
        ("events sent", sums if accounting.balances else f"{sums}  DOES NOT BALANCE"),
    ]
    if report.bad is not None:
        bad = report.bad
        rows.append(("bad checkpoint", f"{bad.version}: {bad.state} after {bad.requests_until_rollback} requests"))
        rows.append(("developers who met it", f"{bad.subjects_exposed_share:.1%}"))
        rows.append(("why it went", bad.reason))
    memory = "" if report.peak_rss_mb is None else f", at most {report.peak_rss_mb:.0f} MB of memory"
    rows.append(("took", f"{report.seconds:.0f} s{memory}"))
    for words, figure in rows:
        table.add_row(words, figure)
    return table


def _interval(metric: Metric) -> str:
    if metric.value is None:
        return "not measured"
    if metric.low is None or metric.high is None:
        return f"{metric.value:.3f}"
    return f"{metric.value:.3f} ±{(metric.high - metric.low) / 2:.3f}"
