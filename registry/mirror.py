"""Show in MLflow what the ledger says: a tag per version and the aliases champion, candidate and previous.

Enters: versions whose mirrored state is not their state. Leaves: the same rows, marked. The ledger is the truth: whatever MLflow
does or fails to do waits for the next look and never holds up a rollout.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Protocol

from contracts.errors import Retry
from contracts.rollout import Rollout
from contracts.states import CheckpointState
from infra.db.engine import reading, writing
from infra.db.query import Engine, Session, col, select, update
from infra.db.tables.registry import RolloutRow, VersionRow

logger = logging.getLogger(__name__)


class Mirror(Protocol):
    def mirror(self, policy: str, version: str, state: str, aliases: dict[str, bool]) -> None: ...


def run(engine: Engine, mirror: Mirror, stop: threading.Event, every_s: float) -> None:
    told: set[str] = set()
    while not stop.wait(every_s):
        try:
            catch_up(engine, mirror, told)
        except Retry as retry:
            logger.warning("MLflow shows an older state for now: %s", retry)
        except Exception:  # a display must not end the process that rolls back
            logger.exception("MLflow could not be brought up to date")


def catch_up(engine: Engine, mirror: Mirror, told: set[str] | None = None) -> int:
    """Mirror each version that needs it, oldest move first; one that cannot be mirrored now does not hold up the others.

    `told` are versions whose failure has been logged already.
    """
    done = 0
    told = set() if told is None else told
    with reading(engine) as session:
        waiting = list(_waiting(session))
        aliases = {row.version: _aliases(session, row) for row in waiting}
    for row in waiting:
        try:
            mirror.mirror(row.policy, row.version, row.state, aliases[row.version])
        except Retry as retry:
            if row.version not in told:
                told.add(row.version)
                logger.warning("MLflow does not show %s as %s yet: %s", row.version, row.state, retry)
            continue
        told.discard(row.version)
        with writing(engine) as session:
            session.execute(
                update(VersionRow)
                .where(col(VersionRow.version) == row.version, col(VersionRow.state) == row.state)
                .values(mirrored_state=row.state)
            )
        done += 1
    return done


def _waiting(session: Session) -> Iterator[VersionRow]:
    mirrored = col(VersionRow.mirrored_state)
    yield from session.exec(
        select(VersionRow)
        .where(mirrored.is_(None) | (mirrored != col(VersionRow.state)))
        .order_by(col(VersionRow.since_ms), col(VersionRow.number))
        .limit(100)
    ).all()


def _aliases(session: Session, row: VersionRow) -> dict[str, bool]:
    routing = session.get(RolloutRow, row.policy)
    rollout = Rollout.decode(routing.body) if routing is not None else None
    previous = session.exec(
        select(VersionRow.version)
        .where(VersionRow.policy == row.policy, VersionRow.state == CheckpointState.RETIRED)
        .order_by(col(VersionRow.since_ms).desc(), col(VersionRow.number).desc())
        .limit(1)
    ).first()
    return {
        "champion": rollout is not None and rollout.champion == row.version,
        "candidate": rollout is not None and rollout.candidate == row.version,
        "previous": previous == row.version,
    }
