"""One member of a group, reading the embedded log.

Enters: polls. Leaves: messages, each partition's in order. Goes wrong: as the file (`Retry`); then nothing has moved and the
same poll may be tried again. A start beyond the end of a partition (the log lost its last moments in a power cut, its
reader's database did not) starts over at what there is, as Kafka does: read twice is better than never.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from infra.eventlog.embedded_file import LogFile
from infra.eventlog.embedded_group import GroupSeat
from infra.eventlog.port import Message, OnAssigned, Partition

SHORTEST_NAP_S = 0.005
LONGEST_NAP_S = 0.025
MOST_BYTES = 16 * 1024 * 1024
"""A poll stops early at this size, so that `most` large records do not fill the memory."""

log = logging.getLogger(__name__)


class EmbeddedConsumer:
    """Has a connection of its own: only so does it notice what other threads of its process wrote."""

    def __init__(
        self, file: LogFile, seat: GroupSeat, group: str, topic_ids: Mapping[str, int], on_assigned: OnAssigned | None
    ) -> None:
        self._file = file
        self._seat = seat
        self._group = group
        self._topic_ids = topic_ids
        self._on_assigned = on_assigned
        self._positions: dict[Partition, int] = {}
        self._seen_version: int | None = None
        self._unsettled = True
        self._drained = False
        self._turn = 0
        self._closed = False

    def poll(self, timeout_s: float, most: int = 500) -> list[Message]:
        deadline = time.monotonic() + timeout_s
        nap_s = SHORTEST_NAP_S
        while True:
            version = self._file.version()
            changed = version != self._seen_version
            if changed or self._unsettled or self._seat.beat_due():
                self._follow_group()
            if changed or not self._drained:
                messages = self._read(most)
                self._seen_version = version
                if messages:
                    return messages
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return []
            time.sleep(min(nap_s, left_s))
            nap_s = min(nap_s * 1.5, LONGEST_NAP_S)

    def assignment(self) -> frozenset[Partition]:
        return frozenset(self._positions)

    def positions(self) -> dict[Partition, int]:
        return dict(self._positions)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """A partition that went to another member is left out: its new owner commits."""
        rows = [
            (self._group, self._topic_ids[place.topic], place.number, offset)
            for place, offset in offsets.items()
            if place in self._positions
        ]
        if not rows:
            return
        with self._file.writing() as connection:
            connection.executemany(
                "INSERT INTO committed (group_name, topic_id, partition, next_offset) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset",
                rows,
            )

    def renew(self, places: frozenset[Partition]) -> None:
        for place in places & self._positions.keys():
            del self._positions[place]
        self._unsettled = True

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._positions.clear()
        try:
            self._seat.leave()
        finally:
            self._file.close()

    def _follow_group(self) -> None:
        membership = self._seat.look()
        for lost in self._positions.keys() - membership.mine:
            del self._positions[lost]
        gained = membership.mine - self._positions.keys()
        if gained and membership.settled:
            self._positions.update(self._starts(gained))
            self._drained = False
            gained = frozenset()
        self._unsettled = bool(gained) or not membership.settled

    def _starts(self, gained: frozenset[Partition]) -> dict[Partition, int]:
        told = self._on_assigned(gained) if self._on_assigned else {}
        starts: dict[Partition, int] = {}
        ends = self._ends()
        for place in gained:
            start = told[place] if place in told else self._committed(place)
            if start > ends[place]:
                log.warning(
                    "%s: told to start %s at %d, which ends at %d; reading it again", self._group, place, start, ends[place]
                )
                start = 0
            starts[place] = start
        return starts

    def _committed(self, place: Partition) -> int:
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT next_offset FROM committed WHERE group_name = ? AND topic_id = ? AND partition = ?",
                (self._group, self._topic_ids[place.topic], place.number),
            ).fetchone()
        return int(row[0]) if row else 0

    def _ends(self) -> dict[Partition, int]:
        ends: dict[Partition, int] = {}
        with self._file.reading() as connection:
            for topic, topic_id in self._topic_ids.items():
                rows = connection.execute("SELECT partition, next_offset FROM partitions WHERE topic_id = ?", (topic_id,))
                ends.update({Partition(topic, number): end for number, end in rows.fetchall()})
        return ends

    def _read(self, most: int) -> list[Message]:
        """Positions move only when everything was read. The partition that goes first changes, so that none starves."""
        ends = self._ends() if self._positions else {}
        behind = sorted(place for place, position in self._positions.items() if position < ends[place])
        self._turn += 1
        first = self._turn % len(behind) if behind else 0
        messages: list[Message] = []
        positions: dict[Partition, int] = {}
        budget = MOST_BYTES
        for place in behind[first:] + behind[:first]:
            if len(messages) >= most or budget <= 0:
                break
            found = self._read_partition(place, most - len(messages), budget)
            messages += found
            budget -= sum(len(message.value) for message in found)
            positions[place] = found[-1].offset + 1 if found else ends[place]  # nothing left: trimmed
        self._positions.update(positions)
        self._drained = not behind
        return messages

    def _read_partition(self, place: Partition, most: int, budget: int) -> list[Message]:
        topic, number = place
        found: list[Message] = []
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT offset, key, value, timestamp_ms FROM records WHERE topic_id = ? AND partition = ? AND offset >= ?"
                " ORDER BY offset LIMIT ?",
                (self._topic_ids[topic], number, self._positions[place], most),
            )
            for offset, key, value, timestamp_ms in rows:
                found.append(Message(topic, number, offset, key, value, timestamp_ms))
                budget -= len(value)
                if budget <= 0:
                    break
            rows.close()
        return found
