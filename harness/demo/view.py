"""The demo in the terminal: what the crowd does, what the learner does, what the gates say, as it happens."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harness.demo.overview import Cycle, Figure, Overview, Rollout, Version

_STYLE = {"live": "green", "canary": "yellow", "bench": "yellow", "rolled_back": "red", "rejected": "red", "retired": "dim"}
_VERDICT = {"pass": "green", "fail": "red", "error": "red", "unsure": "yellow"}


@dataclass(frozen=True)
class Traffic:
    """What the clients know of themselves."""

    requests: int
    per_second: float
    failed: int
    unsent: int
    seconds: float
    doing: str


def render(traffic: Traffic, seen: Overview | None, page: str | None) -> RenderableType:
    head = Text.assemble(
        (f"{traffic.doing}  ", "bold"),
        f"{traffic.requests} requests ({traffic.per_second:.0f}/s, {traffic.failed} failed), ",
        f"{traffic.unsent} events to send, {traffic.seconds:.0f} s",
    )
    parts: list[RenderableType] = [head]
    if seen is None:
        parts.append(Text("The console does not answer yet.", style="dim"))
    else:
        parts += [Text(seen.now), _versions(seen), _learner(seen.cycles)]
        if seen.rollout is not None:
            parts.append(_gates(seen.rollout))
    if page:
        parts.append(Text(f"The same as a page: {page}", style="dim"))
    return Panel(Group(*parts), title="Slipstream demo", title_align="left")


def _versions(seen: Overview) -> Table:
    table = Table(expand=True, box=None, header_style="dim")
    for heading in ("version", "state", "share", "requests", "accepted when shown", "silent", "reward/request", "chars/request"):
        table.add_column(heading, justify="left" if heading in ("version", "state") else "right")
    for version in sorted(seen.versions, key=lambda one: one.number)[-8:]:
        table.add_row(
            version.version, Text(version.state, _STYLE.get(version.state, "")), f"{version.share:.0%}", *_figures(version)
        )
    return table


def _figures(version: Version) -> tuple[str, ...]:
    figures = version.figures
    if figures is None:
        return ("0", "", "", "", "")
    characters = "" if figures.accepted_characters is None else f"{figures.accepted_characters:.2f}"
    return (
        str(figures.requests),
        _interval(figures.accept_rate),
        "" if figures.silent_share is None else f"{figures.silent_share.value:.0%}",
        _interval(figures.reward),
        characters,
    )


def _interval(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if figure.low is None or figure.high is None:
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} ±{(figure.high - figure.low) / 2:.3f}"


def _learner(cycles: tuple[Cycle, ...]) -> RenderableType:
    if not cycles:
        return Text("Learner: waits for its first samples.", style="dim")
    lines = []
    for cycle in cycles[:3]:
        figures = "  ".join(f"{name} {cycle.stats[name]:.4g}" for name in _SHOWN if isinstance(cycle.stats.get(name), int | float))
        why = f" ({cycle.reason})" if cycle.reason else ""
        lines.append(Text(f"Learner: {cycle.version} {cycle.state}{why}, {cycle.samples} samples  {figures}"))
    return Group(*lines)


_SHOWN = ("step", "steps", "loss", "kl", "ess", "grad_norm", "entropy", "seconds")


def _gates(rollout: Rollout) -> RenderableType:
    if not rollout.gates:
        return Text("Gates: no candidate has been judged yet.", style="dim")
    lines = [Text(f"Gates of {rollout.gates_of}:")]
    for gate in rollout.gates:
        lines.append(Text.assemble("  ", (f"{gate.verdict:7}", _VERDICT.get(gate.verdict, "")), f"{gate.gate}: {gate.reason}"))
    return Group(*lines)
