"""Who of a consumer group reads which partitions, in the embedded log.

Enters: the clock and the rows of the group. Leaves: a generation, the partitions that are this member's in it, and whether
the others have let go of theirs. Every change of membership (join, leave, death) makes the next generation; each member works
out the same shares from the same rows, so nobody has to lead.

Goes wrong: a member that did not poll for its timeout is struck off by the next one that looks, and joins anew when it polls
again.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infra.eventlog.embedded_file import LogFile
from infra.eventlog.port import Partition

HANDOVER_S = 1.0
"""How long a member that gained partitions waits for the old owner to notice; a short overlap is better than a long pause."""


def share(members: Mapping[int, Iterable[str]], partitions: Mapping[str, int]) -> dict[int, frozenset[Partition]]:
    """Ranges per topic, members in the order of their ids: topics with equally many partitions and the same readers are
    shared alike, so records of one key meet in one member even across topics."""
    shares: dict[int, set[Partition]] = {member: set() for member in members}
    for topic, count in partitions.items():
        readers = sorted(member for member, topics in members.items() if topic in topics)
        for number in range(count if readers else 0):
            shares[readers[number * len(readers) // max(count, len(readers))]].add(Partition(topic, number))
    return {member: frozenset(places) for member, places in shares.items()}


@dataclass(frozen=True, slots=True)
class Membership:
    """What a member knows of its group. `settled`: everyone alive has let go of what is no longer theirs."""

    generation: int
    mine: frozenset[Partition]
    settled: bool


class GroupSeat:
    """One member's seat in its group. `look` must be called about as often as something changed in the file."""

    def __init__(self, file: LogFile, group: str, partitions: Mapping[str, int], timeout_s: float) -> None:
        self._file = file
        self._group = group
        self._partitions = partitions
        self._timeout_ms = int(timeout_s * 1000)
        self._member: int | None = None
        self._known: Membership | None = None
        self._beat_due = 0.0

    def beat_due(self) -> bool:
        return time.monotonic() >= self._beat_due

    def look(self) -> Membership:
        """Heartbeat when due, join when not (or no longer) a member, and tell how the group stands."""
        if self._member is None:
            return self._join()
        if self.beat_due():
            self._beat()
        with self._file.reading() as connection:
            row = connection.execute("SELECT generation, changed_ms FROM groups WHERE name = ?", (self._group,)).fetchone()
        generation, changed_ms = row
        if self._known is None or generation != self._known.generation:
            return self._regroup()
        if not self._known.settled:
            self._known = Membership(generation, self._known.mine, self._all_settled(generation, changed_ms))
        return self._known

    def leave(self) -> None:
        if self._member is None:
            return
        with self._file.writing() as connection:
            if connection.execute("DELETE FROM members WHERE id = ?", (self._member,)).rowcount:
                self._next_generation(connection)
        self._member = self._known = None

    def _join(self) -> Membership:
        with self._file.writing() as connection:
            self._strike_off_dead(connection)
            self._next_generation(connection)
            self._member = connection.execute(
                "INSERT INTO members (group_name, topics, seen_ms, timeout_ms, settled) VALUES (?, ?, ?, ?, 0)",
                (self._group, json.dumps(sorted(self._partitions)), _now_ms(), self._timeout_ms),
            ).lastrowid
        self._beat_due = time.monotonic() + self._timeout_ms / 3000
        return self._regroup()

    def _beat(self) -> None:
        with self._file.writing() as connection:
            connection.execute("UPDATE members SET seen_ms = ? WHERE id = ?", (_now_ms(), self._member))
            if self._strike_off_dead(connection):
                self._next_generation(connection)
        self._beat_due = time.monotonic() + self._timeout_ms / 3000

    def _regroup(self) -> Membership:
        """Take up the newest generation and say so in this member's row."""
        with self._file.writing() as connection:
            generation, changed_ms = connection.execute(
                "SELECT generation, changed_ms FROM groups WHERE name = ?", (self._group,)
            ).fetchone()
            rows = connection.execute("SELECT id, topics FROM members WHERE group_name = ?", (self._group,)).fetchall()
            members: dict[int, Sequence[str]] = {member: json.loads(topics) for member, topics in rows}
            if self._member in members:
                connection.execute("UPDATE members SET settled = ? WHERE id = ?", (generation, self._member))
        if self._member is None or self._member not in members:  # struck off while it was silent
            self._member = self._known = None
            return Membership(generation, frozenset(), settled=False)
        mine = share(members, self._partitions)[self._member]
        self._known = Membership(generation, mine, self._all_settled(generation, changed_ms))
        return self._known

    def _all_settled(self, generation: int, changed_ms: int) -> bool:
        if abs(_now_ms() - changed_ms) > HANDOVER_S * 1000:
            return True
        with self._file.reading() as connection:
            behind = connection.execute(
                "SELECT 1 FROM members WHERE group_name = ? AND settled < ? LIMIT 1", (self._group, generation)
            ).fetchone()
        return behind is None

    def _strike_off_dead(self, connection: sqlite3.Connection) -> int:
        """A time in the future is as dead as an old one: the wall clock was set back."""
        return connection.execute(
            "DELETE FROM members WHERE group_name = ? AND abs(? - seen_ms) > timeout_ms", (self._group, _now_ms())
        ).rowcount

    def _next_generation(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            "INSERT INTO groups (name, generation, changed_ms) VALUES (?, 1, ?) ON CONFLICT (name) DO UPDATE SET"
            " generation = generation + 1, changed_ms = excluded.changed_ms",
            (self._group, _now_ms()),
        )


def _now_ms() -> int:
    return int(time.time() * 1000)
