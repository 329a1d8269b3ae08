"""Delete a person: everything that is stored of them goes, and stays away.

Enters: a person's hashes. Leaves: a report. In this order, each step whole or not done, so that a crash anywhere is resumed by
asking again or by the retention worker: first the tombstone, the list of touched checkpoints, and no sample of theirs waits any
more (one transaction); then rows, a few hundred at a time; then spools, payloads and the embedded log. What lies in a broker is
read once more by nobody who would keep it, and goes by the topic's retention. Repeating it is harmless.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlmodel import Session, col, select

from contracts.errors import Retry
from contracts.outcome import Outcome
from contracts.record import Record
from contracts.states import Disposition
from contracts.turn import Turn
from infra.db.counters import Tally, count_all
from infra.db.engine import reading, writing
from infra.db.insert import insert_new, upsert
from infra.db.query import Engine
from infra.db.tables.ingest import OutcomeRow, RevisionRow, TurnRow
from infra.db.tables.people import DeletedSubjectRow, DeletionRow, ErasedRow, TouchedRow
from infra.db.tables.rewarding import SampleRow
from infra.eventlog.embedded_erase import erase
from infra.eventlog.port import EventLog, Partition
from infra.people import gate, spooled
from infra.people.gone import SUBJECT_DELETED, counter_of, digest, remember
from infra.people.lineage import Touched, spread, touched_by
from infra.people.payload_files import payloads
from infra.people.rows import AT_ONCE, episodes_of, erase_some, hold_back
from infra.people.trace import TOPICS, Trace
from infra.settings import Settings

logger = logging.getLogger(__name__)

_EMBEDDED = "sqlite:///"


@dataclass(frozen=True)
class Report:
    """`went`: numbers by kind of thing. Not `done`: something has to wait, and the retention worker sees to it."""

    deletion_id: str
    done: bool
    went: Mapping[str, int]
    touched: tuple[Touched, ...]


@dataclass(frozen=True)
class Places:
    """Where a person's words may lie. `log` None: the event log is away, so what is in it is left for later."""

    engine: Engine
    log: EventLog | None
    log_file: Path | None
    spool: Path
    payloads: Path


def places(settings: Settings, engine: Engine, log: EventLog | None) -> Places:
    file = Path(settings.event_log.removeprefix(_EMBEDDED)) if settings.event_log.startswith(_EMBEDDED) else None
    return Places(engine, log, file, settings.spool, settings.artifact_root / "payloads")


def ask(engine: Engine, hashes: Sequence[str], now_ms: int) -> str:
    """The tombstone: from its commit on nothing of this person from before `now_ms` is kept or trained on. Answers the deletion's
    id. Asked again, the same deletion is renewed: it covers what came since."""
    with writing(engine) as session:
        gate.come_alone(session)
        known = session.exec(select(DeletedSubjectRow).where(col(DeletedSubjectRow.subject).in_(hashes))).all()
        deletion_id = known[0].deletion_id if known else f"del-{uuid.uuid4().hex}"
        rows = [DeletedSubjectRow(subject=name, deletion_id=deletion_id, deleted_ms=now_ms) for name in hashes]
        upsert(session, DeletedSubjectRow, rows, ("deletion_id", "deleted_ms"))
        _keep_touched(session, hashes, deletion_id)
        row = session.get(DeletionRow, deletion_id, with_for_update=True)
        row = row or DeletionRow(deletion_id=deletion_id, asked_ms=now_ms, done_ms=None, report="{}")
        row.asked_ms, row.done_ms = now_ms, None
        _add(row, Counter({"samples held back": hold_back(session, hashes)}))
        session.add(row)
    return deletion_id


def finish(where: Places, deletion_id: str, now_ms: int) -> bool:
    """Do what is left of a deletion; False when something has to wait (for a log, or for a spool that a living process holds)."""
    with reading(where.engine) as session:
        row = session.get(DeletionRow, deletion_id)
        if row is None:
            return True
        subjects = session.exec(select(DeletedSubjectRow.subject).where(DeletedSubjectRow.deletion_id == deletion_id)).all()
    until_ms = row.asked_ms
    while _erase_rows(where.engine, subjects, deletion_id, until_ms):
        pass
    with reading(where.engine) as session:
        erased = set(session.exec(select(ErasedRow.digest).where(ErasedRow.deletion_id == deletion_id)).all())
    sweep = _Sweep(where, deletion_id, Trace(frozenset(subjects), until_ms, erased))
    done = sweep.spools() & sweep.log()
    sweep.payloads()
    if done:
        with writing(where.engine) as session:
            found = session.get(DeletionRow, deletion_id, with_for_update=True)
            # Renewed meanwhile: what came since is not covered by what was done here.
            if found is not None and found.asked_ms == until_ms:
                found.done_ms = now_ms
                session.add(found)
        _overwrite_leftovers(where.engine)
    return done


def unfinished(engine: Engine) -> list[str]:
    with reading(engine) as session:
        return list(session.exec(select(DeletionRow.deletion_id).where(col(DeletionRow.done_ms).is_(None))).all())


def report(engine: Engine, deletion_id: str) -> Report:
    """What was found and what went, and the checkpoints that this person's words are in, as they stand now."""
    with reading(engine) as session:
        row = session.get(DeletionRow, deletion_id)
        kept = session.exec(select(TouchedRow).where(TouchedRow.deletion_id == deletion_id)).all()
        touched = spread(session, {one.version: one.samples for one in kept if one.samples})
    went = {} if row is None else json.loads(row.report)
    return Report(deletion_id, row is not None and row.done_ms is not None, went, tuple(touched))


def anything_before(engine: Engine, ms: int) -> bool:
    """Whether the service stored something before that time, by its own clock, that is still there."""
    with reading(engine) as session:
        queries = (
            select(TurnRow.turn_id).where(TurnRow.received_ms < ms),
            select(OutcomeRow.event_id).where(OutcomeRow.received_ms < ms),
            select(RevisionRow.episode_id).where(RevisionRow.published_ms < ms),
        )
        return any(session.exec(query.limit(1)).first() is not None for query in queries)


def _keep_touched(session: Session, hashes: Sequence[str], deletion_id: str) -> None:
    insert_new(
        session,
        TouchedRow,
        [
            TouchedRow(deletion_id=deletion_id, version=one.version, policy=one.policy, samples=one.samples, state_then=one.state)
            for one in touched_by(session, hashes)
        ],
    )


def _erase_rows(engine: Engine, subjects: Sequence[str], deletion_id: str, until_ms: int) -> int:
    with writing(engine) as session:
        gate.come_alone(session)
        some = episodes_of(session, subjects, until_ms, AT_ONCE)
        if some:
            # A cycle that is being sealed with samples of theirs comes first, and is on the list; or it finds them gone.
            session.exec(select(SampleRow.sample_id).where(col(SampleRow.sample_id).in_(some)).with_for_update()).all()
            _keep_touched(session, subjects, deletion_id)
            _note(session, deletion_id, erase_some(session, some, deletion_id, until_ms))
    return len(some)


class _Sweep:
    """What is not in rows. Each thing found is entered into the books as the joiner would have, and only then removed."""

    def __init__(self, where: Places, deletion_id: str, trace: Trace) -> None:
        self._where = where
        self._deletion_id = deletion_id
        self._trace = trace

    def spools(self) -> bool:
        found = [self._trace.find(entry.topic, entry.value) for entry in spooled.spooled(self._where.spool, self._mine)]
        self._settle([record for record in found if record is not None])
        removed, held = spooled.remove(self._where.spool, self._mine)
        self._count("spooled entries", removed)
        return held == 0

    def log(self) -> bool:
        if self._where.log is None:
            return False
        if self._where.log_file is None:
            return True
        try:
            self._where.log.ensure(TOPICS)
            for topic in TOPICS:
                self._topic(self._where.log, self._where.log_file, topic.name)
        except Retry as away:
            logger.warning("a deletion waits: %s", away)
            return False
        return True

    def _topic(self, log: EventLog, file: Path, topic: str) -> None:
        found: list[tuple[Partition, int]] = []
        records: list[Record] = []
        for message in log.scan(topic):
            record = self._trace.find(topic, message.value)
            if record is not None:
                found.append((message.place, message.offset))
                records.append(record)
        if found:
            self._settle(records)
            self._count("log records", erase(file, found))

    def payloads(self) -> None:
        for file, topic, value in list(payloads(self._where.payloads, self._mine)):
            record = self._trace.find(topic, value)
            self._settle([record] if record is not None else [])
            _overwrite(file)
            self._count("payload files", 1)

    def _mine(self, topic: str, value: bytes) -> bool:
        record = self._trace.find(topic, value)
        if isinstance(record, Turn):
            self._trace.learn(record)
        return record is not None

    def _settle(self, records: Sequence[Record]) -> None:
        turns = [record for record in records if isinstance(record, Turn)]
        outcomes = [record for record in records if isinstance(record, Outcome)]
        if not turns and not outcomes:
            return
        for turn in turns:
            self._trace.learn(turn)
        tally: Tally = Counter()
        with writing(self._where.engine) as session:
            gate.come_alone(session)
            marks = {digest(turn.turn_id): turn for turn in turns}
            new = insert_new(session, ErasedRow, [self._mark(one) for one in marks])
            tally.update((marks[one].policy, f"turns_{SUBJECT_DELETED}") for one in new)
            insert_new(session, ErasedRow, [self._mark(digest(name)) for name in {turn.episode_id for turn in turns}])
            refused = {o.event_id: (o.policy, counter_of(Disposition.REFUSED, SUBJECT_DELETED)) for o in outcomes}
            remember(session, refused, tally, self._trace.until_ms)
            count_all(session, tally)

    def _mark(self, one: bytes) -> ErasedRow:
        return ErasedRow(digest=one, deletion_id=self._deletion_id, deleted_ms=self._trace.until_ms)

    def _count(self, what: str, number: int) -> None:
        if number:
            with writing(self._where.engine) as session:
                _note(session, self._deletion_id, Counter({what: number}))


def _note(session: Session, deletion_id: str, went: Counter[str]) -> None:
    row = session.get(DeletionRow, deletion_id, with_for_update=True)
    if row is not None:
        _add(row, went)
        session.add(row)


def _add(row: DeletionRow, went: Counter[str]) -> None:
    row.report = json.dumps(dict(sorted((Counter(json.loads(row.report)) + went).items())))


def _overwrite(file: Path) -> None:
    try:
        with file.open("r+b") as stream:
            stream.write(b"\0" * file.stat().st_size)
        file.unlink()
    except FileNotFoundError:
        pass


def _overwrite_leftovers(engine: Engine) -> None:
    """SQLite keeps old pages in its write-ahead log until it is emptied, which readers may prevent; then the next one does it."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.connection.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # type: ignore[union-attr]
