"""What the joiner should make of what it is told, said a second time and without a database; and ways to tell it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from contracts.episode import Episode
from contracts.outcome import Outcome
from contracts.policy import Policy
from contracts.record import Record
from contracts.states import Disposition
from contracts.turn import Turn
from infra.db.engine import open_db, reading, writing
from infra.db.query import Engine, col, select
from infra.db.tables.ingest import OutcomeRow, RefusalRow, RevisionRow, TurnRow
from infra.db.tables.stream import CounterRow
from infra.eventlog.embedded import partition_of
from infra.eventlog.port import Message, Partition
from infra.stream import Delivery
from ingest.join.joiner import Joiner

LANES = 2


def lane_of(record: Record) -> int:
    return partition_of(str(record.episode_id), LANES)


@cache
def _template(folder: Path) -> Path:
    open_db(f"sqlite:///{folder / 'template.db'}").dispose()
    return folder / "template.db"


def fresh_db(folder: Path) -> Engine:
    """A database of its own, copied from one that was made once (unless these tests run on a server, which has no files)."""
    template = _template(folder)
    own = folder / f"copy-{sum(1 for _ in folder.glob('copy-*'))}"
    own.mkdir()
    if template.exists():
        shutil.copy(template, own / "db")
    return open_db(f"sqlite:///{own / 'db'}")


def delivery(record: Record, lane: int = 0) -> Delivery:
    topic = "turns" if isinstance(record, Turn) else "outcomes"
    return Delivery(Message(topic, lane, 0, None, record.encode(), 0), record)


def deliver(engine: Engine, joiner: Joiner, *records: Record, lane: int = 0) -> None:
    with writing(engine) as session:
        joiner.apply(session, [delivery(record, lane) for record in records])


def read_up_to(at_ms: int, lanes: Iterable[int] = (0,)) -> dict[Partition, int]:
    return {Partition(topic, lane): at_ms for topic in ("turns", "outcomes") for lane in lanes}


@dataclass(frozen=True)
class Books:
    """What there is in the end. Revisions are numbered by arrival, so their number is left out."""

    episodes: Mapping[str, Episode]
    fates: Mapping[str, tuple[str, str | None]]
    counters: Mapping[str, int] = field(default_factory=dict)


def read_books(engine: Engine) -> Books:
    with reading(engine) as session:
        revisions = session.exec(select(RevisionRow).order_by(col(RevisionRow.revision))).all()
        newest = {row.episode_id: Episode.decode(row.body) for row in revisions}
        fates = {row.event_id: (row.disposition, row.reason) for row in session.exec(select(OutcomeRow)).all()}
        counters = {row.name: row.count for row in session.exec(select(CounterRow)).all()}
    return Books({name: one.model_copy(update={"revision": 1}) for name, one in newest.items()}, fates, counters)


def count_rows(engine: Engine) -> tuple[int, int, int]:
    """Turns, outcomes, refusals."""
    with reading(engine) as session:
        return (
            len(session.exec(select(TurnRow.turn_id)).all()),
            len(session.exec(select(OutcomeRow.event_id)).all()),
            len(session.exec(select(RefusalRow.refusal_id)).all()),
        )


def expected(policy: Policy, turns: Sequence[Turn], tellings: Sequence[Outcome]) -> Books:
    """After everything was told and every window is over."""
    first: dict[str, Outcome] = {}
    for telling in sorted(tellings, key=lambda one: (one.received_at, one.encode())):
        first.setdefault(telling.event_id, telling)
    known: dict[str, dict[str, Turn]] = {}
    for turn in turns:
        known.setdefault(turn.episode_id, {})[turn.turn_id] = turn
    fates: dict[str, tuple[str, str | None]] = {}
    for outcome in first.values():
        there = known.get(outcome.episode_id, {})
        joins = bool(there) if outcome.turn_id is None else outcome.turn_id in there
        fates[outcome.event_id] = (Disposition.JOINED, None) if joins else (Disposition.REFUSED, "no_turn")
    episodes = {}
    for episode_id, there in known.items():
        ordered = sorted(there.values(), key=lambda turn: (turn.started_at, turn.turn_id))

        def when(outcome: Outcome, there: dict[str, Turn] = there, ordered: list[Turn] = ordered) -> datetime:
            began = ordered[0] if outcome.turn_id is None else there[outcome.turn_id]
            return min(outcome.received_at, max(outcome.occurred_at, began.started_at))

        mine = [one for one in first.values() if one.episode_id == episode_id and fates[one.event_id][0] == Disposition.JOINED]
        mine.sort(key=lambda one: (when(one), one.event_id))
        closings = [when(one) for one in mine if one.happening.kind == "closed"]
        last = max([ordered[-1].started_at, *map(when, mine)])
        episodes[episode_id] = Episode(
            episode_id=episode_id,
            policy=ordered[0].policy,
            revision=1,
            subject=ordered[0].subject,
            turns=tuple(ordered),
            outcomes=tuple(mine),
            closed_by="closed" if closings else "quiet",
            closed_at=closings[0] if closings else last + timedelta(seconds=policy.quiet_seconds),
        )
    return Books(episodes, fates)
