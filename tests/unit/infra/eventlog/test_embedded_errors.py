"""What the embedded log says when the file under it does not do what it should: a sentence, and it goes on when the reason is
gone."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.errors import Retry, StartError
from contracts.outcome import Refusal
from contracts.topics import Topic
from infra.eventlog.embedded import EmbeddedLog
from infra.eventlog.port import Entry

TOPIC = Topic("events", Refusal, "refusal_id", 1, 3600)
ENTRY = Entry("key", b"value")
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[EmbeddedLog]:
    log = EmbeddedLog(path, busy_timeout_s=0.2)
    log.ensure([TOPIC])
    yield log
    log.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can enter (pytest's own are private)."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def told_as_nobody(path: Path) -> str:
    """What an append says to a user without any rights, in a process of its own: root may write anything."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            EmbeddedLog(path).append(TOPIC.name, [ENTRY])
            os.write(writing, b"it was written")
        except Retry as error:
            os.write(writing, str(error).encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        sentence = told.read()
    os.waitpid(child, 0)
    return sentence


@pytest.mark.parametrize("in_use", [True, False])
def test_a_read_only_file(open_folder: Path, in_use: bool) -> None:
    path = open_folder / "log.db"
    log = EmbeddedLog(path)
    log.ensure([TOPIC])
    log.append(TOPIC.name, [ENTRY])
    if not in_use:
        log.close()
    for file in open_folder.iterdir():
        file.chmod(0o444)
    open_folder.chmod(0o555)
    assert told_as_nobody(path) == f"The event log {path} cannot be written: the file or its folder is read-only for this user."
    log.close()


def test_a_full_disk(log: EmbeddedLog, path: Path) -> None:
    """A limit on the size of files stands for it; SQLite calls one disk error what it calls full for the other."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(Retry, match=rf"The event log {path} cannot (grow|be read or written): .*\."):
            for _ in range(100):
                log.append(TOPIC.name, [Entry("key", bytes(10_000))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    before = sum(log.ends(TOPIC.name).values())
    log.append(TOPIC.name, [ENTRY])
    assert sum(log.ends(TOPIC.name).values()) == before + 1


def test_a_lock_that_is_held_for_long(log: EmbeddedLog, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Retry, match=r"is locked: another process held it for more than 0\.2 s\."):
        log.append(TOPIC.name, [ENTRY])
    assert sum(log.ends(TOPIC.name).values()) == 0
    other.execute("ROLLBACK")
    other.close()
    log.append(TOPIC.name, [ENTRY])


def test_a_poll_that_cannot_write_its_heartbeat_loses_nothing(log: EmbeddedLog, path: Path) -> None:
    log.append(TOPIC.name, [ENTRY])
    consumer = log.consumer("group", [TOPIC.name])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Retry, match="is locked"):
        consumer.poll(0)
    other.execute("ROLLBACK")
    other.close()
    assert [message.value for message in consumer.poll(5)] == [b"value"]
    consumer.close()


def test_a_file_that_is_something_else(path: Path) -> None:
    path.write_bytes(b"these are my holiday notes, not a database\n" * 100)
    with pytest.raises(StartError, match="is damaged or not an event log"):
        EmbeddedLog(path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StartError, match="cannot be opened: "):
        EmbeddedLog(tmp_path / "file" / "log.db")
