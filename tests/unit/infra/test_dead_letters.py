"""Dead letters: everything about them is kept, and they come back as they were, once."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.dead_letter import DeadLetter
from contracts.episode import EpisodeClosed
from contracts.errors import Poison, Retry
from contracts.topics import EPISODES, grave
from infra.cli.dlq import readable
from infra.db.engine import open_db, writing
from infra.db.lease import acquire
from infra.db.query import Engine
from infra.dead_letters import OWNER, burial, buried, put_back
from infra.eventlog.open import open_log_at
from infra.eventlog.port import Entry, EventLog, Message
from infra.stream import Stream

GOOD = EpisodeClosed(episode_id="ep-good", policy="tab", revision=1)
BAD = [b"{", b"\xff\x00\x01", b"", b'{"kind":"\\ud800"}', b"x" * 300_000]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_db(f"sqlite:///{tmp_path / 'db'}")


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    log = open_log_at(f"sqlite:///{tmp_path / 'log.db'}", tmp_path / "payloads")
    log.ensure([EPISODES])
    return log


@pytest.fixture
def consume(engine: Engine, log: EventLog) -> Callable[[], list[str]]:
    """Read what there is; answers the episodes that could be read."""

    def run() -> list[str]:
        seen: list[str] = []
        stream = Stream(engine, log, "g", [EPISODES], lambda _, found: seen.extend(each.record.episode_id for each in found))
        while stream.step(0.3):
            pass
        stream.close()
        return seen

    return run


def place(message: Message) -> tuple[str, int, int]:
    return (message.topic, message.partition, message.offset)


def test_what_cannot_be_read_is_buried_as_it_was_and_the_next_is_read(engine, log, consume):
    log.append(EPISODES.name, [Entry(f"bad-{n}", value) for n, value in enumerate(BAD)] + [Entry("ep-good", GOOD.encode())])
    lying = {place(message): message for message in log.scan(EPISODES.name)}
    assert consume() == ["ep-good"]
    letters = [each.letter for each in buried(engine, log, [EPISODES.name])]
    assert len(letters) == len(BAD)
    for letter in letters:
        message = lying[letter.topic, letter.partition, letter.offset]
        assert (letter.key, letter.value, letter.reason) == (message.key, message.value, "malformed_episodeclosed")
    assert consume() == []


def test_a_letter_is_plain_base64_on_the_wire():
    message = Message("turns", 1, 7, "k\ud800\x00", bytes(range(256)), 0)
    value = burial("g", message, Poison("why", "since \ud800")).value
    assert base64.b64decode(json.loads(value)["value"]) == bytes(range(256))
    letter = DeadLetter.decode(value)
    assert (letter.value, letter.key, letter.detail) == (bytes(range(256)), "k\\ud800\\x00", "since \\ud800")
    with pytest.raises(Poison, match=r"malformed_deadletter: value: .*expected base64"):
        DeadLetter.decode(json.dumps({**json.loads(value), "value": "a b"}))


def test_it_is_put_back_once_however_often_that_is_asked_for(engine, log, consume):
    log.append(EPISODES.name, [Entry(f"bad-{n}", value) for n, value in enumerate(BAD)])
    before = [(message.key, message.partition, message.value) for message in log.scan(EPISODES.name)]
    consume()
    assert [now for _, now in put_back(engine, log, buried(engine, log, [EPISODES.name]))] == [True] * len(BAD)
    assert [now for _, now in put_back(engine, log, buried(engine, log, [EPISODES.name]))] == [False] * len(BAD)
    after = [(message.key, message.partition, message.value) for message in log.scan(EPISODES.name)]
    assert sorted(after, key=str) == sorted(before * 2, key=str)
    assert all(each.retried_at is not None for each in buried(engine, log, [EPISODES.name]))
    consume()
    again = [each for each in buried(engine, log, [EPISODES.name]) if each.retried_at is None]
    assert sorted(each.letter.value for each in again) == sorted(BAD)  # at new places: they may be tried once more


def test_a_payload_that_was_away_is_read_once_it_is_back_and_tried_again(engine, log, consume, tmp_path):
    large = EpisodeClosed(episode_id="ep-large", policy="tab", revision=1).encode() + b" " * 300_000
    log.append(EPISODES.name, [Entry("ep-large", large), Entry("ep-good", GOOD.encode())])
    (file,) = (tmp_path / "payloads").glob("*/*")
    file.rename(tmp_path / "elsewhere")
    assert consume() == ["ep-good"]
    (each,) = buried(engine, log, [EPISODES.name])
    assert each.letter.reason == "payload_missing"
    (tmp_path / "elsewhere").rename(file)
    list(put_back(engine, log, [each]))
    assert consume() == ["ep-large"]


def test_a_crash_after_the_promise_is_made_good_by_the_next_call(engine, log, consume):
    class Away:
        def append(self, topic: str, entries: object) -> None:
            raise Retry("the log is away")

    log.append(EPISODES.name, [Entry("bad", b"{")])
    consume()
    with pytest.raises(Retry, match="the log is away"):
        list(put_back(engine, Away(), list(buried(engine, log, [EPISODES.name]))))
    assert len(list(log.scan(EPISODES.name))) == 1
    assert [now for _, now in put_back(engine, log, buried(engine, log, [EPISODES.name]))] == [False]
    assert [message.value for message in log.scan(EPISODES.name)] == [b"{", b"{"]


def test_two_at_once_do_not_publish_twice(engine, log, consume):
    log.append(EPISODES.name, [Entry(f"bad-{n}", b"{") for n in range(40)])
    consume()
    refused = []

    def run() -> None:
        try:
            list(put_back(engine, log, buried(engine, log, [EPISODES.name])))
        except Retry as error:
            refused.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(log.scan(EPISODES.name))) == 80
    with writing(engine) as session:
        assert acquire(session, OWNER, "somebody", 0, 10**15)
    with pytest.raises(Retry, match="another `slipstream dlq retry` runs"):
        list(put_back(engine, log, []))


def test_a_grave_keeps_letters_for_thirty_days():
    assert (grave(EPISODES).name, grave(EPISODES).record, grave(EPISODES).retention_s) == ("episodes.dlq", DeadLetter, 30 * 86_400)


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_value_can_be_shown(value):
    assert readable(value).encode() or not value
