"""Where a group goes on reading, in the database of its effects, and who may write there.

Enters: partitions and sessions. Leaves: a claim per partition, its offset and a generation that each claim raises. `advance` writes
the next offsets in the transaction of the effects. What can go wrong: another member claimed a partition since, so what was
prepared for it must not be written (`Overtaken`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sqlmodel import Session, and_, col, or_, select

from contracts.errors import Fenced
from infra.db.insert import insert_new
from infra.db.tables.stream import OffsetRow
from infra.eventlog.port import Partition

logger = logging.getLogger(__name__)


class Claim(NamedTuple):
    generation: int
    next_offset: int


class Overtaken(Fenced):
    """`places` went to another member."""

    def __init__(self, group: str, places: frozenset[Partition]) -> None:
        names = ", ".join(f"{topic}[{number}]" for topic, number in sorted(places))
        super().__init__(f"{group}: another member took over {names}; what was done for it here is left out")
        self.places = places


def claim(
    session: Session,
    group: str,
    places: Iterable[Partition],
    ends: Mapping[Partition, int],
    read_ends: Callable[[], Mapping[Partition, int]],
) -> dict[Partition, Claim]:
    """Take the partitions over, all at once: from the commit on nobody else writes there. A place beyond the end of its partition
    (the log lost its last moments, or was made anew) goes back to the beginning: read twice is better than never. The ends were
    read before, and somebody may have written and applied more since; so who seems to be beyond is looked at again."""
    wanted = sorted(places)
    insert_new(
        session,
        OffsetRow,
        [OffsetRow(consumer_group=group, topic=topic, partition_number=number, next_offset=0) for topic, number in wanted],
    )
    claims: dict[Partition, Claim] = {}
    rows = _locked(session, group, wanted)
    if any(row.next_offset > ends.get(place, row.next_offset) for place, row in rows.items()):
        ends = read_ends()
    for place, row in rows.items():
        row.generation += 1
        if row.next_offset > ends.get(place, row.next_offset):
            words = "%s: %s[%d] ends before what was read of it: the log was replaced or lost its end; it is read anew"
            logger.warning(words, group, *place)
            row.next_offset = 0
        session.add(row)
        claims[place] = Claim(row.generation, row.next_offset)
    return claims


def advance(session: Session, group: str, reached: Mapping[Partition, int], held: Mapping[Partition, Claim]) -> None:
    rows = _locked(session, group, sorted(reached))
    lost = frozenset(
        place
        for place in reached
        if place not in rows or place not in held or held[place] != Claim(rows[place].generation, rows[place].next_offset)
    )
    if lost:
        raise Overtaken(group, lost)
    for place, row in rows.items():
        row.next_offset = reached[place]
        session.add(row)


def _locked(session: Session, group: str, places: list[Partition]) -> dict[Partition, OffsetRow]:
    """In one order for everybody, so that no two wait for each other."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in places:
        numbers[topic].append(number)
    query = (
        select(OffsetRow)
        .where(
            OffsetRow.consumer_group == group,
            or_(*(and_(OffsetRow.topic == topic, col(OffsetRow.partition_number).in_(some)) for topic, some in numbers.items())),
        )
        .order_by(col(OffsetRow.topic), col(OffsetRow.partition_number))
        .with_for_update()
    )
    return {Partition(row.topic, row.partition_number): row for row in session.exec(query).all()}
