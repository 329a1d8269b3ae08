"""What a gate is: a frozen record of options that looks at `Evidence` and answers a `GateResult`.

Enters: a rollout plan's plugins, then evidence. Leaves: results, one per gate, named so that no two are alike. What can go wrong:
a plan that names an unknown gate or option raises `StartError`; a gate that raises while judging counts as ERROR, never as PASS.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Protocol

from pydantic import ValidationError

from contracts.catalog import Catalog
from contracts.errors import StartError, UnknownName
from contracts.policy import Plugin
from contracts.record import Record, first_fault
from contracts.verdict import GateResult, Verdict
from registry.evidence import Evidence

logger = logging.getLogger(__name__)


class GateOptions(Record):
    """Base of gates: options are its fields, checked when a plan is loaded."""

    @property
    def subject(self) -> str:
        """What it judges, to tell two gates of one kind apart; empty where there is only one thing to judge."""
        return ""

    def measures(self) -> frozenset[str]:
        """The per-request figures that the evidence must hold for it: `reward`, `latency_ms`, or the name of a reward part."""
        return frozenset()


class Gate(Protocol):
    """`judge` names no gate in its result: whoever built it knows its name in the plan."""

    @property
    def subject(self) -> str: ...

    def measures(self) -> frozenset[str]: ...

    def judge(self, evidence: Evidence) -> Finding: ...


class Finding(Record):
    """A verdict with the figure it was formed by; a figure that is no number is no figure."""

    verdict: Verdict
    reason: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0

    def named(self, gate: str) -> GateResult:
        value, low, high = (_finite(figure) for figure in (self.value, self.low, self.high))
        return GateResult(gate=gate, verdict=self.verdict, reason=self.reason, value=value, low=low, high=high, n=self.n)


GATES: Catalog[type[Gate]] = Catalog("gate", "registry.gates")


class Panel:
    """The gates of one place in a plan, built and named."""

    def __init__(self, plan: str, plugins: Sequence[Plugin]) -> None:
        self._gates: dict[str, Gate] = {}
        for plugin in plugins:
            gate = _build(plan, plugin)
            base = ".".join(part for part in (plugin.name, gate.subject) if part)
            name, twin = base, 1
            while name in self._gates:
                twin += 1
                name = f"{base}.{twin}"
            self._gates[name] = gate

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._gates)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset(measure for gate in self._gates.values() for measure in gate.measures())

    def judge(self, evidence: Evidence) -> tuple[GateResult, ...]:
        return tuple(_judge(name, gate, evidence) for name, gate in self._gates.items())


def _judge(name: str, gate: Gate, evidence: Evidence) -> GateResult:
    try:
        return gate.judge(evidence).named(name)
    except Exception as error:  # a gate may be anybody's; whatever it raises, it has not passed
        logger.exception("gate %s could not judge %s", name, evidence.version)
        return GateResult(gate=name, verdict=Verdict.ERROR, reason=f"the gate itself failed: {type(error).__name__}: {error}")


def _build(plan: str, plugin: Plugin) -> Gate:
    try:
        return GATES.get(plugin.name)(**plugin.options)
    except UnknownName as error:
        raise StartError(f"rollout plan {plan}: {error}") from error
    except ValidationError as error:
        raise StartError(f"rollout plan {plan}: gate {plugin.name}: {first_fault(error)}") from error


def _finite(figure: float | None) -> float | None:
    return figure if figure is not None and math.isfinite(figure) else None
