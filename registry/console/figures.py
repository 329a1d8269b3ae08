"""Rewards in numbers by version and stretch of time, in two passes over the rows.

Enters: rows of one policy and spec. Leaves: figures by version, and a series for a chart. Turns asked for by version name are left
out: nobody's product showed them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from infra.clock import from_ms
from infra.db.query import Session, case, col, func, select
from infra.db.tables.rewarding import RewardPartRow, RewardRow
from registry.console.views import Figure, PartFigure, Point, Series, VersionFigures
from registry.statistics import Interval, normal_mean, wilson

_MOST_BUCKETS = 60
_WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400, 604_800)


@dataclass
class _Part:
    weight: float = 0.0
    n: int = 0
    total: float = 0.0

    def add(self, other: _Part) -> None:
        self.weight, self.n, self.total = other.weight, self.n + other.n, self.total + other.total


@dataclass
class _Cell:
    """Sums over the episodes of one version in one stretch."""

    requests: int = 0
    silent: int = 0
    rewarded: int = 0
    total: float = 0.0
    squares: float = 0.0
    parts: dict[str, _Part] = field(default_factory=lambda: defaultdict(_Part))

    def add(self, other: _Cell) -> None:
        self.requests += other.requests
        self.silent += other.silent
        self.rewarded += other.rewarded
        self.total += other.total
        self.squares += other.squares
        for name, part in other.parts.items():
            self.parts[name].add(part)


@dataclass(frozen=True)
class Figures:
    by_version: dict[str, VersionFigures]
    series: Series


def read_figures(session: Session, policy: str, spec: str) -> Figures:
    closed = col(RewardRow.closed_ms)
    mine = (RewardRow.policy == policy, RewardRow.spec == spec, RewardRow.arm != "pinned", col(RewardRow.version).is_not(None))
    first, last = session.exec(select(func.min(closed), func.max(closed)).where(*mine)).one()
    width_s = _width((last - first) / 1000 if first is not None else 0.0)
    stretch = (closed - closed % (width_s * 1000)).label("stretch")
    value = col(RewardRow.value)
    cells: dict[tuple[str, int], _Cell] = defaultdict(_Cell)
    silent = func.sum(case((col(RewardRow.finish) == "silence", 1), else_=0))
    version = col(RewardRow.version)
    columns = (version, stretch, func.count(), silent, func.count(value), func.sum(value), func.sum(value * value))
    totals = select(*columns).where(*mine).group_by(version, stretch)  # type: ignore[call-overload]
    for name, at_ms, n, quiet, rewarded, total, squares in session.execute(totals):
        cells[name, at_ms] = _Cell(n, quiet, rewarded, total or 0.0, squares or 0.0)
    part = col(RewardPartRow.value)
    parts_of = (version, stretch, RewardPartRow.name, func.max(RewardPartRow.weight), func.count(part), func.sum(part))
    parts = (
        select(*parts_of)  # type: ignore[call-overload]
        .join(RewardPartRow, (col(RewardPartRow.episode_id) == RewardRow.episode_id) & (col(RewardPartRow.spec) == RewardRow.spec))
        .where(*mine, part.is_not(None))
        .group_by(version, stretch, col(RewardPartRow.name))
    )
    for name, at_ms, extractor, weight, n, total in session.execute(parts):
        cells[name, at_ms].parts[extractor] = _Part(weight, n, total)
    return Figures(_by_version(cells), Series(bucket_seconds=width_s, points=_points(cells)))


def _width(span_s: float) -> int:
    return next((width for width in _WIDTHS_S if span_s / width <= _MOST_BUCKETS), _WIDTHS_S[-1])


def _by_version(cells: dict[tuple[str, int], _Cell]) -> dict[str, VersionFigures]:
    sums: dict[str, _Cell] = defaultdict(_Cell)
    for (version, _), cell in cells.items():
        sums[version].add(cell)
    return {version: _figures(version, cell) for version, cell in sums.items()}


def _figures(version: str, cell: _Cell) -> VersionFigures:
    accepted, shown, characters = (cell.parts.get(name, _Part()) for name in ("accepted", "shown", "accepted_characters"))
    return VersionFigures(
        version=version,
        requests=cell.requests,
        rewarded=cell.rewarded,
        shown=int(shown.total),
        accepted=int(accepted.total),
        accept_rate=_figure(wilson(int(accepted.total), int(max(shown.total, accepted.total)))),
        silent_share=_figure(wilson(cell.silent, cell.requests)),
        reward=_figure(normal_mean(cell.rewarded, cell.total, cell.squares)),
        accepted_characters=characters.total / cell.requests if characters.n else None,
        parts=tuple(
            PartFigure(name=name, weight=part.weight, mean=part.total / part.n, n=part.n)
            for name, part in sorted(cell.parts.items())
            if part.n
        ),
    )


def _figure(interval: Interval | None) -> Figure | None:
    if interval is None:
        return None
    known = interval.high < float("inf")
    return Figure(value=interval.value, low=interval.low if known else None, high=interval.high if known else None, n=interval.n)


def _points(cells: dict[tuple[str, int], _Cell]) -> tuple[Point, ...]:
    return tuple(
        Point(
            at=from_ms(at_ms),
            version=version,
            requests=cell.requests,
            reward=cell.total / cell.rewarded if cell.rewarded else None,
            accept_rate=cell.parts["accepted"].total / cell.parts["shown"].total if cell.parts["shown"].total else None,
        )
        for (version, at_ms), cell in sorted(cells.items(), key=lambda item: (item[0][1], item[0][0]))
    )
