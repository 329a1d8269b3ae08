"""The Python SDK's spool: what was not sent is there for the next process, once, in order, and within bounds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream_events import Client, Limits
from slipstream_events.spool import DiskSpool
from slipstream_events.tally import Tally
from tests.unit.ingest.sdk_server import Answer, Collector, all_taken, serving

ROOT = Path(__file__).resolve().parents[3]
AWAY = Limits(batch_events=10, linger_s=0.02, wait_s=0.1, exit_s=1.0)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with serving(Collector()) as collector:
        yield collector


def spool(folder: Path, most_bytes: int = 1 << 20, age_s: float = 1000.0) -> tuple[DiskSpool, Tally]:
    tally = Tally()
    return DiskSpool(folder, tally, most_bytes, age_s, file_events=10), tally


def line(n: int) -> bytes:
    return json.dumps({"id": f"e{n}", "type": "slipstream.shown"}).encode()


def files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def program(body: str, **environment: str) -> subprocess.Popen[str]:
    prelude = "import os, sys, time\nfrom slipstream_events import Client, Limits\n"
    return subprocess.Popen(
        [sys.executable, "-c", prelude + body],
        env={**os.environ, "PYTHONPATH": str(ROOT / "ingest/sdk/python"), **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_what_one_process_could_not_send_the_next_one_sends_oldest_first(collector, tmp_path):
    collector.answers = lambda events: Answer(503)
    with Client(collector.url, "tab", spool=tmp_path, limits=AWAY) as first:
        told = [first.shown("ep-1.1-0") for _ in range(35)]
    assert first.stats.queued == 0 and first.stats.spooled >= 35
    assert len(files(tmp_path)) >= 4
    collector.answers = all_taken
    with Client(collector.url, "tab", spool=tmp_path, limits=AWAY) as second:
        assert second.flush()
        assert second.stats.taken == second.stats.recovered == 35
    assert collector.ids == told and files(tmp_path) == []


def test_what_was_told_to_one_collector_is_never_sent_to_another(collector, tmp_path):
    with Client("http://127.0.0.1:9", "tab", spool=tmp_path, limits=AWAY) as elsewhere:
        elsewhere.shown("ep-1.1-0")
    with Client(collector.url, "tab", spool=tmp_path, limits=AWAY) as client:
        client.shown("ep-1.1-0")
        assert client.flush()
    assert len(collector.events) == 1 and len(files(tmp_path)) == 1


def test_while_the_collector_is_away_files_fill_up_before_there_is_another(tmp_path):
    disk, _ = spool(tmp_path)
    for n in range(25):
        disk.add([line(n)])
    assert len(files(tmp_path)) == 3
    claims = [disk.claim() for _ in range(3)]
    assert [one for claim in claims for one in claim.lines] == [line(n) for n in range(25)]
    assert disk.claim() is None


def test_the_oldest_make_room_and_are_counted(tmp_path):
    disk, tally = spool(tmp_path, most_bytes=2000)
    for n in range(100):
        disk.add([line(n)])
    assert sum(file.stat().st_size for file in files(tmp_path)) <= 2000
    kept = []
    while (claim := disk.claim()) is not None:
        kept += claim.lines
        claim.done()
    assert kept == [line(n) for n in range(100)][-len(kept) :]
    assert tally.stats().dropped == {"spool_full": 100 - len(kept)} and files(tmp_path) == []


def test_what_is_too_old_is_dropped_and_counted(tmp_path):
    disk, tally = spool(tmp_path, age_s=1000.0)
    disk.add([line(1), line(2)])
    (young,) = files(tmp_path)
    began_us, _, rest = young.name.partition("-")
    young.rename(young.with_name(f"{int(began_us) - 2_000_000_000:017d}-{rest}"))
    disk.add([line(n) for n in range(3, 13)])
    claim = disk.claim()
    assert len(claim.lines) == 10 and tally.stats().dropped == {"too_old": 2}


def test_a_line_that_a_kill_cut_short_harms_no_other(tmp_path):
    disk, tally = spool(tmp_path)
    disk.add([line(1), line(2)])
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes() + b'{"oops\n' + line(3)[:7])
    assert disk.claim().lines == [line(1), line(2)] and tally.stats().dropped == {"damaged": 2}


def test_what_is_left_of_a_claim_is_there_again(tmp_path):
    disk, _ = spool(tmp_path)
    disk.add([line(1), line(2), line(3)])
    disk.claim().give_back([line(2)])
    assert disk.claim().lines == [line(2)]


def test_a_file_in_hand_belongs_to_one_and_is_free_when_its_process_dies(tmp_path):
    disk, _ = spool(tmp_path)
    disk.add([line(1)])
    holder = program(
        "from pathlib import Path\nfrom slipstream_events.spool import DiskSpool\nfrom slipstream_events.tally import Tally\n"
        "claim = DiskSpool(Path(sys.argv[1] if sys.argv[1:] else os.environ['FOLDER']), Tally(), 10**6, 1000, 10).claim()\n"
        "print(len(claim.lines), flush=True)\ntime.sleep(60)\n",
        FOLDER=str(tmp_path),
    )
    assert holder.stdout.readline() == "1\n"
    assert disk.claim() is None
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert disk.claim().lines == [line(1)]


def test_an_earlier_process_with_our_number_is_gone_too(tmp_path):
    disk, _ = spool(tmp_path)
    disk.add([line(1)])
    (free,) = files(tmp_path)
    from slipstream_events.spool import _name_taken

    free.rename(_name_taken(free))  # as if a container's process 1 had been killed and started again
    assert disk.claim().lines == [line(1)]


def test_a_disk_of_no_use_costs_nothing_but_the_spool(collector, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    answers = [Answer(503), Answer(503)]
    collector.answers = lambda events: answers.pop() if answers else all_taken(events)
    with Client(collector.url, "tab", spool=blocked, limits=AWAY) as client:
        told = [client.shown("ep-1.1-0") for _ in range(25)]
        assert client.flush()
    assert sorted(collector.ids) == sorted(told) and client.stats.queued == 0


def test_memory_alone_is_bounded_and_what_it_loses_at_the_end_is_counted(tmp_path):
    limits = Limits(batch_events=10, linger_s=0.0, queue_bytes=4096, wait_s=0.1, exit_s=0.2)
    with Client("http://127.0.0.1:9", "tab", spool=False, limits=limits) as client:
        for _ in range(100):
            client.shown("ep-1.1-0")
            time.sleep(0.001)
    stats = client.stats
    assert stats.queued == stats.spooled == 0 and sum(stats.dropped.values()) == 100
    assert stats.dropped.keys() == {"queue_full", "exit"} or stats.dropped.keys() == {"spool_full", "exit"}


def test_processes_share_a_folder_without_sending_anything_twice(collector, tmp_path):
    collector.answers = lambda events: Answer(503)
    with Client(collector.url, "tab", spool=tmp_path, limits=AWAY) as client:
        told = [client.shown("ep-1.1-0") for _ in range(200)]
    collector.requests.clear()
    collector.answers = lambda events: Answer(202, all_taken(events).body, after_s=0.01)
    body = (
        "client = Client(os.environ['URL'], 'tab', spool=os.environ['FOLDER'], limits=Limits(linger_s=0.0))\n"
        "client.shown('ep-1.1-0')\nclient.flush(60)\nprint(client.stats.recovered)\n"
    )
    drainers = [program(body, URL=collector.url, FOLDER=str(tmp_path)) for _ in range(3)]
    recovered = [int(drainer.communicate(timeout=100)[0]) for drainer in drainers]
    counts = Counter(collector.ids)
    assert sum(recovered) == 200 and set(told) <= set(counts) and len(counts) == 203 and set(counts.values()) == {1}


def test_the_spool_is_for_this_persons_eyes_only(tmp_path):
    with Client("http://127.0.0.1:9", "tab", spool=tmp_path, limits=AWAY) as client:
        client.follow_up("ep-1.1-0", text="my words")
    (file,) = files(tmp_path)
    assert file.stat().st_mode & 0o077 == 0 and file.parent.stat().st_mode & 0o077 == 0
