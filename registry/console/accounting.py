"""What became of each event that somebody sent, counted where it is kept: nothing disappears without a reason and a count."""

from __future__ import annotations

from contracts.states import Disposition
from infra.db.query import Session, col, func, select
from infra.db.tables.ingest import OutcomeRow, RefusalRow
from infra.db.tables.stream import CounterRow
from infra.people.gone import GONE
from registry.console.views import Accounting, Count

_sent_again = select(OutcomeRow.event_id).where(OutcomeRow.event_id == RefusalRow.event_id).exists()
"""An event that was refused, mended and sent again under its id is what became of it then."""


def read_accounting(session: Session, policy: str) -> Accounting:
    by_fate = session.exec(
        select(OutcomeRow.disposition, OutcomeRow.reason, func.count())
        .where(OutcomeRow.policy == policy)
        .group_by(col(OutcomeRow.disposition), col(OutcomeRow.reason))
    ).all()
    turned_away = session.exec(
        select(RefusalRow.reason, func.count()).where(RefusalRow.policy == policy, ~_sent_again).group_by(col(RefusalRow.reason))
    ).all()
    fates: dict[str, int] = {}
    refused: dict[str, int] = dict(turned_away)
    for fate, reason, n in by_fate:
        if fate == Disposition.REFUSED:
            refused[reason or "no reason kept"] = refused.get(reason or "no reason kept", 0) + n
        else:
            fates[fate] = fates.get(fate, 0) + n
    counters = dict(session.exec(select(CounterRow.name, CounterRow.count).where(CounterRow.policy == policy)).all())
    for name in [name for name in counters if name.startswith(GONE)]:
        # Rows that retention or a deletion let go: what became of those events is known all the same.
        fate, _, reason = name.removeprefix(GONE).partition(".")
        if fate == Disposition.REFUSED:
            refused[reason] = refused.get(reason, 0) + counters.pop(name)
        elif fate in (Disposition.JOINED, Disposition.LATE):
            fates[fate] = fates.get(fate, 0) + counters.pop(name)
    return Accounting(
        joined=fates.get(Disposition.JOINED, 0),
        late=fates.get(Disposition.LATE, 0),
        waiting=fates.get(Disposition.WAITING, 0),
        refused=tuple(Count(name=name, count=n) for name, n in sorted(refused.items()) if n),
        counters=tuple(Count(name=name, count=n) for name, n in sorted(counters.items())),
    )
