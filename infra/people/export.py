"""Everything that is stored of a person, as one JSON file.

Enters: a person's hashes. Leaves: an object with one list per place, and a manifest at its end that says what was looked at, how
much was found, and what cannot be linked to a person. Only its owner may read the file. What can go wrong: `StartError` when a
file of that name is there already or it cannot be written.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from sqlmodel import Session, SQLModel, col, select

from contracts.errors import StartError
from contracts.turn import Turn
from infra.clock import from_ms
from infra.db.engine import reading
from infra.db.tables.ingest import EpisodeRow, OutcomeRow, RefusalRow, RevisionRow, TurnRow
from infra.db.tables.people import DeletedSubjectRow, TouchedRow
from infra.db.tables.rewarding import RewardPartRow, RewardRow, SampleRow
from infra.people import spooled
from infra.people.deletion import Places
from infra.people.gone import digest
from infra.people.lineage import Touched, touched_by
from infra.people.payload_files import payloads
from infra.people.rows import episodes_of
from infra.people.trace import TOPICS, Trace

FORMAT = "slipstream-subject-export/1"
_AT_ONCE = 200

_TABLES: Mapping[str, tuple[type[SQLModel], Any]] = {
    "turns": (TurnRow, col(TurnRow.episode_id)),
    "outcomes": (OutcomeRow, col(OutcomeRow.episode_id)),
    "episodes": (EpisodeRow, col(EpisodeRow.episode_id)),
    "revisions": (RevisionRow, col(RevisionRow.episode_id)),
    "rewards": (RewardRow, col(RewardRow.episode_id)),
    "reward_parts": (RewardPartRow, col(RewardPartRow.episode_id)),
    "samples": (SampleRow, col(SampleRow.sample_id)),
}

_NOT_LINKED = (
    "answers without consent, of which only a count exists",
    "refused events that name no event of this person: what was refused is not kept, only why",
    "events whose rows are gone, of which a digest of the id exists",
    "what was stored under a key that was forgotten",
    "spools on other machines, until they have reached the log",
)


def export(where: Places, hashes: Sequence[str], registered: str, opted_out: bool, now_ms: int, to: Path) -> dict[str, Any]:
    """Answers the manifest."""
    try:
        stream = os.fdopen(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")
    except FileExistsError:
        raise StartError(f"{to} exists already; name another file with --to") from None
    except OSError as error:
        raise StartError(f"cannot write {to}: {error.strerror}") from error
    counts: Counter[str] = Counter()
    with stream:
        stream.write("{\n")
        with reading(where.engine) as session:
            ids = episodes_of(session, hashes, now_ms)
            for name, (table, column) in _TABLES.items():
                _write(stream, name, _rows(session, table, column, ids), counts)
            events = session.exec(select(OutcomeRow.event_id).where(col(OutcomeRow.episode_id).in_(ids))).all()
            _write(stream, "refusals", _rows(session, RefusalRow, col(RefusalRow.event_id), events), counts)
            _write(stream, "checkpoints_trained_on", _checkpoints(session, hashes), counts)
            turns = session.exec(select(TurnRow.turn_id).where(col(TurnRow.episode_id).in_(ids))).all()
        trace = Trace(frozenset(hashes), now_ms, {digest(name) for name in (*ids, *turns)})
        _write(stream, "spooled", _spooled(where, trace), counts)
        _write(stream, "payload_files", _payloads(where, trace), counts)
        _write(stream, "log", _logged(where, trace), counts)
        manifest = {
            "format": FORMAT,
            "at": from_ms(now_ms).isoformat(),
            "stored_as": list(hashes),
            "in_the_register_as": registered,
            "opted_out": opted_out,
            "counts": dict(counts),
            "log_was_read": where.log is not None,
            "not_linked": _NOT_LINKED,
        }
        stream.write(f'"manifest": {json.dumps(manifest, indent=1)}\n}}\n')
    return manifest


def _rows(session: Session, table: type[SQLModel], column: Any, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows as they are; a record that lies in one as JSON text is opened up."""
    for start in range(0, len(names), _AT_ONCE):
        for row in session.exec(select(table).where(column.in_(names[start : start + _AT_ONCE]))).all():
            plain = row.model_dump(mode="json")
            if plain.get("body"):
                plain["body"] = json.loads(plain["body"])
            yield plain


def _checkpoints(session: Session, hashes: Sequence[str]) -> Iterator[dict[str, Any]]:
    known = {one.version: one for one in touched_by(session, hashes)}
    deletions = select(DeletedSubjectRow.deletion_id).where(col(DeletedSubjectRow.subject).in_(hashes))
    for row in session.exec(select(TouchedRow).where(col(TouchedRow.deletion_id).in_(deletions))).all():
        known.setdefault(row.version, Touched(row.version, row.policy, row.samples, row.state_then))
    yield from (dataclasses.asdict(one) for one in known.values())


def _spooled(where: Places, trace: Trace) -> Iterator[dict[str, Any]]:
    def mine(topic: str, value: bytes) -> bool:
        record = trace.find(topic, value)
        if isinstance(record, Turn):
            trace.learn(record)
        return record is not None

    for entry in spooled.spooled(where.spool, mine):
        yield {"file": entry.file, "topic": entry.topic, "record": json.loads(entry.value)}


def _payloads(where: Places, trace: Trace) -> Iterator[dict[str, Any]]:
    for file, topic, value in payloads(where.payloads, lambda topic, value: trace.find(topic, value) is not None):
        yield {"file": f"{file.parent.name}/{file.name}", "topic": topic, "record": json.loads(value)}


def _logged(where: Places, trace: Trace) -> Iterator[dict[str, Any]]:
    if where.log is None:
        return
    where.log.ensure(TOPICS)
    for topic in TOPICS:
        for message in where.log.scan(topic.name):
            record = trace.find(topic.name, message.value)
            if isinstance(record, Turn):
                trace.learn(record)
            if record is not None:
                place = {"topic": topic.name, "partition": message.partition, "offset": message.offset}
                yield {**place, "record": record.model_dump(mode="json")}


def _write(stream: TextIO, name: str, items: Iterator[dict[str, Any]], counts: Counter[str]) -> None:
    """One list, item by item: a person may have more than fits into memory."""
    stream.write(f'"{name}": [')
    counts[name] = 0
    for item in items:
        stream.write(("," if counts[name] else "") + "\n " + json.dumps(item, ensure_ascii=False))
        counts[name] += 1
    stream.write("\n],\n")
