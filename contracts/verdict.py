"""Verdicts of gates. Only PASS promotes; no evidence is UNSURE; among several the worst wins."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from contracts.record import Finite, Name, Record


class Verdict(StrEnum):
    PASS = "pass"
    UNSURE = "unsure"
    ERROR = "error"
    FAIL = "fail"


_SEVERITY = {Verdict.PASS: 0, Verdict.UNSURE: 1, Verdict.ERROR: 2, Verdict.FAIL: 3}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of several; UNSURE when there is none, because nothing was shown."""
    return max(verdicts, key=_SEVERITY.__getitem__, default=Verdict.UNSURE)


class GateResult(Record):
    """What one gate says about one version at one step, with the figure it judged by (None: no figure could be had)."""

    gate: Name
    verdict: Verdict
    reason: str
    value: Finite | None = None
    low: Finite | None = None
    high: Finite | None = None
    n: int = 0
