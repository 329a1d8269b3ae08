"""Until when each kind of data is kept, policy by policy.

Enters: policies and the present. Leaves: for each kind the moment before which data must go, for rows of every policy there is, and
of those that nobody has a file for any more. What several policies share goes by the shortest time that any of them names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from contracts.policy import Policy, Retention
from infra.db.query import col, or_

_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Terms:
    policies: Mapping[str, Retention]
    now_ms: int

    def each(self, kind: str) -> Iterator[tuple[Policies, int]]:
        """Groups of policies with the moment (Unix, milliseconds) before which their data of this kind must go."""
        for name, retention in self.policies.items():
            yield Policies((name,), others=False), self._before(getattr(retention, kind))
        yield Policies(tuple(self.policies), others=True), self.shared(kind)

    def shared(self, kind: str) -> int:
        return self._before(min(self._days(kind)))

    def longest(self, kind: str) -> int:
        return self._before(max(self._days(kind)))

    def _days(self, kind: str) -> list[float]:
        return [getattr(retention, kind) for retention in self.policies.values()] or [getattr(Retention(), kind)]

    def _before(self, days: float) -> int:
        return self.now_ms - int(days * _DAY_MS)


@dataclass(frozen=True)
class Policies:
    """One policy, or (`others`) all but these, and rows that name none."""

    names: tuple[str, ...]
    others: bool

    def __call__(self, column: Any) -> Any:
        if not self.others:
            return col(column).in_(self.names)
        return or_(col(column).not_in(self.names), col(column).is_(None))


def terms(policies: Iterable[Policy], now_ms: int) -> Terms:
    return Terms({policy.name: policy.retention for policy in policies}, now_ms)
