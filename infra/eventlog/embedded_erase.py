"""Take records out of the embedded log before their time: a person asked for it.

Enters: the log's file and places of records. Leaves: a file without them, their pages overwritten. Consumers do not notice:
offsets may have gaps, and none is ever used again. Not possible on a broker, where records go by the topic's retention.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from infra.eventlog.embedded_file import LogFile
from infra.eventlog.port import Partition

_AT_ONCE = 500


def erase(path: Path, places: Collection[tuple[Partition, int]]) -> int:
    """Answers how many records went. Raises `Retry` when the file is locked or cannot be written."""
    file, gone = LogFile(path, busy_timeout_s=10.0), 0
    ordered = sorted(places)
    try:
        for start in range(0, len(ordered), _AT_ONCE):
            with file.writing() as connection:
                connection.execute("PRAGMA secure_delete = ON")
                gone += connection.executemany(
                    "DELETE FROM records WHERE topic_id = (SELECT id FROM topics WHERE name = ?) AND partition = ? AND offset = ?",
                    [(place.topic, place.number, offset) for place, offset in ordered[start : start + _AT_ONCE]],
                ).rowcount
        if gone:
            with file.reading() as connection:
                # The write-ahead log has pages from before; while somebody reads it stays until the next one does this.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        file.close()
    return gone
