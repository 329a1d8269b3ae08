"""The report: changes are relative, nothing is divided by nothing, and the books balance or say that they do not."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from contracts.checkpoint import Metric
from harness.demo import report as reporting
from harness.demo.heldout import Figures
from harness.demo.report import Accounting, Bad, Report
from harness.intervals import mean, rate


def figures(version: str, accepted: int, shown: int, reward: float) -> Figures:
    return Figures(
        version=version,
        accept_rate=rate("accept_rate", accepted, shown),
        shown=rate("shown", shown, 100),
        reward=Metric(name="reward", value=reward),
        accepted_characters=mean("accepted_characters", [1.0, 3.0]),
    )


def report(**changes) -> Report:
    fields = {
        "seconds": 1.0,
        "seed": 0,
        "cycles": 3,
        "promoted": 3,
        "rolled_back": 1,
        "requests": 100,
        "failed_requests": 0,
        "peak_rss_mb": None,
        "accounting": Accounting(sent=10, joined=7, late=1, refused={"no_turn": 2}),
        "before": figures("v0", 20, 80, 0.04),
        "after": figures("v3", 20, 50, 0.1),
        "bad": Bad(version="v2", state="rolled_back", reason="r", requests_until_rollback=60, subjects_exposed_share=0.1),
    }
    return Report(**{**fields, **changes})


def test_changes_are_relative_to_before():
    told = report()
    assert told.change("accept_rate") == pytest.approx(0.6)
    assert told.change("shown") == pytest.approx(-0.375)
    assert told.change("reward") == pytest.approx(1.5)


def test_a_ratio_to_nothing_is_not_a_figure():
    assert report(before=figures("v0", 20, 80, -0.01)).change("reward") is None
    assert report(before=figures("v0", 0, 0, 0.1)).change("accept_rate") is None


def test_the_books_balance_or_the_table_says_so():
    out = StringIO()
    reporting.show(report(), Console(file=out, width=200))
    assert "DOES NOT BALANCE" not in out.getvalue() and "10 = 7 joined + 1 late + refused (2 no_turn)" in out.getvalue()
    lost = Accounting(sent=11, joined=7, late=1, refused={"no_turn": 2})
    assert not lost.balances
    reporting.show(report(accounting=lost), Console(file=out, width=200))
    assert "DOES NOT BALANCE" in out.getvalue()


def test_the_file_has_the_keys_that_were_promised(tmp_path):
    reporting.write(report(), tmp_path / "report.json")
    told = json.loads((tmp_path / "report.json").read_text())
    service = {"seconds", "cycles", "promoted", "rolled_back", "failed_requests", "peak_rss_mb", "accounting"}
    promised = service | {"before", "after", "bad"}
    assert promised <= set(told)
    assert {"accept_rate", "shown", "reward"} <= set(told["before"]) == set(told["after"])
    assert {"value", "low", "high", "n"} <= set(told["before"]["accept_rate"])
    assert {"requests_until_rollback", "subjects_exposed_share"} <= set(told["bad"])


def test_intervals_contain_their_value_and_nothing_comes_of_nothing():
    some = rate("x", 3, 10)
    assert some.low is not None and some.high is not None and some.low < 0.3 < some.high
    assert rate("x", 0, 0).value is None and mean("x", []).value is None
    assert mean("x", [2.0]).low is None
