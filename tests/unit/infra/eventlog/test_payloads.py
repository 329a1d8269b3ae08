"""Large values beside the log: whole or not at all, once however often they are put."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from contracts.errors import Poison, Retry
from contracts.outcome import Refusal
from contracts.topics import CHECKPOINTS, Topic
from infra.eventlog.embedded import EmbeddedLog
from infra.eventlog.payload_log import GRACE_S, LARGE_BYTES, PayloadLog
from infra.eventlog.payloads import MARK, Payloads, is_pointer
from infra.eventlog.port import Entry

TOPIC = Topic("events", Refusal, "refusal_id", 1, 3600)
LARGE = os.urandom(LARGE_BYTES + 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "payloads"


@pytest.fixture
def beneath(tmp_path: Path) -> EmbeddedLog:
    return EmbeddedLog(tmp_path / "log.db")


@pytest.fixture
def log(root: Path, beneath: EmbeddedLog) -> PayloadLog:
    log = PayloadLog(beneath, Payloads(root))
    log.ensure([TOPIC])
    return log


def files(root: Path) -> list[Path]:
    return [file for file in root.glob("*/*") if file.is_file()]


def test_the_log_carries_a_pointer_of_the_promised_shape(log, beneath, root):
    log.append(TOPIC.name, [Entry("k", LARGE), Entry("k", LARGE), Entry("k", b"small")])
    first, second, small = [message.value for message in beneath.scan(TOPIC.name)]
    assert first == second and is_pointer(first) and len(first) < 300
    (file,) = files(root)
    assert (
        first == MARK + f'{{"uri":"payloads/{file.parent.name}/{file.name}","sha256":"{file.name}","size":{len(LARGE)}}}'.encode()
    )
    assert file.read_bytes() == LARGE and small == b"small"
    assert [message.value for message in log.scan(TOPIC.name)] == [LARGE, LARGE, b"small"]


def test_a_value_that_looks_like_a_pointer_is_not_followed(log, root):
    secret = Payloads(root).put(LARGE)
    lookalikes = [MARK, MARK + b"{}", secret + b" ", secret.replace(b'"size":', b'"size":1'), MARK + b"../../etc/passwd"]
    log.append(TOPIC.name, [Entry("k", value) for value in lookalikes])
    found = list(log.scan(TOPIC.name))
    assert [message.value for message in found[:3]] == lookalikes[:3]
    assert found[3].fault is not None and found[3].fault.reason == "payload_altered"
    assert found[4].value == lookalikes[4] and found[4].fault is None


def test_a_draft_that_a_crash_left_is_never_read_and_goes_in_time(root):
    payloads = Payloads(root)
    pointer = payloads.put(LARGE)
    (file,) = files(root)
    draft = file.parent / ".draft-1"
    draft.write_bytes(LARGE[:100])
    file.unlink()
    with pytest.raises(Poison, match="payload_missing"):
        payloads.get(pointer)
    now_s = draft.stat().st_mtime
    assert (payloads.trim(10**9, now_s), draft.exists()) == (0, True)
    assert (payloads.trim(10**9, now_s + 4_000), draft.exists()) == (0, False)


def test_a_file_of_another_size_is_written_again(root):
    payloads = Payloads(root)
    pointer = payloads.put(LARGE)
    (file,) = files(root)
    file.write_bytes(b"cut off")
    assert payloads.put(LARGE) == pointer and payloads.get(pointer) == LARGE


def test_many_writers_of_the_same_bytes_make_one_file(root):
    threads = [threading.Thread(target=Payloads(root).put, args=(LARGE,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (file,) = files(root)
    assert file.read_bytes() == LARGE


def test_trim_removes_what_the_longest_retention_no_longer_needs(log, root):
    log.append(TOPIC.name, [Entry("k", LARGE)])
    (old,) = files(root)
    log.append(TOPIC.name, [Entry("k", LARGE + b"young")])
    (young,) = [file for file in files(root) if file != old]
    longest_s = CHECKPOINTS.retention_s + GRACE_S
    os.utime(old, (0, old.stat().st_mtime - longest_s - 60))
    os.utime(young, (0, young.stat().st_mtime - longest_s + 60))
    log.trim()
    assert files(root) == [young]


def test_putting_again_makes_a_payload_young(log, root):
    log.append(TOPIC.name, [Entry("k", LARGE)])
    (file,) = files(root)
    os.utime(file, (0, 0))
    log.append(TOPIC.name, [Entry("k", LARGE)])
    log.trim()
    assert files(root) == [file]


def test_a_folder_that_cannot_be_used_is_a_retry_and_nothing_is_lost(log, beneath, root):
    root.write_text("a file where the folder should be")
    with pytest.raises(Retry, match=r"payload folder .* cannot be written"):
        log.append(TOPIC.name, [Entry("k", b"small"), Entry("k", LARGE)])
    assert list(beneath.scan(TOPIC.name)) == []
    root.unlink()
    log.append(TOPIC.name, [Entry("k", b"small"), Entry("k", LARGE)])
    consumer = log.consumer("g", [TOPIC.name])
    aside = root.rename(root.with_name("aside"))
    root.mkdir()
    (aside / "x").mkdir()
    for folder in aside.iterdir():
        (root / folder.name).write_text("a file where a folder should be")
    with pytest.raises(Retry, match="cannot be read"):
        while True:
            consumer.poll(0.1)
    for file in root.iterdir():
        file.unlink()
    for folder in aside.iterdir():
        folder.rename(root / folder.name)
    assert [message.value for message in consumer.poll(1)] == [b"small", LARGE]
    consumer.close()
