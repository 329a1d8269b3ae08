"""Keys: shown once, kept as hashes, scoped, revoked within seconds; and what a program without one may do."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import infra.door
from contracts.errors import Retry, StartError, UnknownName
from infra.db.engine import open_db
from infra.db.query import Engine
from infra.door import Door, Turned
from infra.keys import Key, Scope, any_key, create_key, find_key, is_secret_of, list_keys, parse_key, revoke_key
from tests.conftest import REPOSITORY


class Seconds:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = open_db(f"sqlite:///{tmp_path / 'db'}")
    yield made
    made.dispose()


def make(engine: Engine, *scopes: Scope, rate: float | None = None) -> tuple[Key, str]:
    return create_key(engine, "editor", scopes or (Scope.PRODUCER,), rate, 1)


def admit(door: Door, text: str | None, scope: Scope = Scope.PRODUCER) -> Key | None:
    return asyncio.run(door.admit(None if text is None else f"Bearer {text}", scope))


def turned(door: Door, text: str | None, scope: Scope = Scope.PRODUCER) -> Turned:
    with pytest.raises(Turned) as caught:
        admit(door, text, scope)
    return caught.value


def test_a_key_is_shown_once_and_kept_as_a_hash(engine: Engine, tmp_path: Path) -> None:
    key, text = make(engine, Scope.PRODUCER, Scope.VIEWER, rate=5.0)
    parsed = parse_key(text)
    assert parsed is not None and parsed[0] == key.key_id and text.startswith(f"sk_{key.key_id}_")
    assert find_key(engine, key.key_id) == key and key.scopes == {Scope.PRODUCER, Scope.VIEWER} and key.rate == 5.0
    assert is_secret_of(key, parsed[1]) and not is_secret_of(key, "0" * 48)
    assert key.hashed.startswith("$argon2id$")
    engine.dispose()
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert parsed[1].encode() not in kept and key.key_id.encode() in kept


def test_what_makes_no_sense_is_refused(engine: Engine) -> None:
    with pytest.raises(StartError, match="producer, client, operator, viewer"):
        create_key(engine, "x", [], None, 1)
    for rate in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(StartError, match="above 0"):
            create_key(engine, "x", [Scope.CLIENT], rate, 1)
    assert [parse_key(text) for text in ("", "sk_", "sk_0_1", "sk_" + "0" * 12 + "_" + "0" * 47, "pk_" + "0" * 12)] == [None] * 5
    assert not any_key(engine)


def test_a_key_is_revoked_for_good_and_stays_on_the_list(engine: Engine) -> None:
    key, _ = make(engine)
    assert revoke_key(engine, key.key_id, 7).revoked_ms == 7
    assert revoke_key(engine, key.key_id, 9).revoked_ms == 7
    assert [one.revoked_ms for one in list_keys(engine)] == [7] and any_key(engine)
    with pytest.raises(UnknownName, match=key.key_id):
        revoke_key(engine, "nope", 1)


def test_only_the_right_key_comes_in_and_only_for_what_it_is_for(engine: Engine) -> None:
    key, text = make(engine, Scope.PRODUCER)
    door = Door(lambda: engine, loopback=False)
    assert admit(door, text) == key
    assert turned(door, text, Scope.OPERATOR).status == 403 and "producer" in turned(door, text, Scope.OPERATOR).message
    for wrong in (None, "", "x", text[:-1] + ("0" if text[-1] != "0" else "1"), f"sk_{'0' * 12}_{'0' * 48}", text + "0"):
        assert turned(door, wrong).status == 401
    with pytest.raises(Turned):
        asyncio.run(door.admit(f"Basic {text}", Scope.PRODUCER))


def test_argon2_runs_once_per_key_and_not_in_the_event_loop(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noted(key: Key, secret: str) -> bool:
        threads.append(threading.current_thread().name)
        return is_secret_of(key, secret)

    monkeypatch.setattr(infra.door, "is_secret_of", noted)
    _, text = make(engine)
    clock = Seconds()
    door = Door(lambda: engine, loopback=False, remember_s=5.0, clock=clock)

    async def many() -> list[Key | None]:
        return await asyncio.gather(*(door.admit(f"Bearer {text}", Scope.PRODUCER) for _ in range(50)))

    assert len(asyncio.run(many())) == 50
    clock.now += 60
    assert admit(door, text) is not None
    assert len(threads) == 1 and threads[0].startswith("argon2")


def test_a_revoked_key_stops_working_within_the_time_that_is_remembered(engine: Engine) -> None:
    key, text = make(engine)
    clock = Seconds()
    door = Door(lambda: engine, loopback=False, remember_s=5.0, clock=clock)
    assert admit(door, text) is not None
    revoke_key(engine, key.key_id, 2)
    clock.now += 4.9
    assert admit(door, text) is not None, "remembered"
    clock.now += 0.2
    assert turned(door, text).status == 401


def test_without_any_key_this_machine_comes_in_and_the_first_key_closes_the_door(engine: Engine) -> None:
    clock = Seconds()
    door = Door(lambda: engine, loopback=True, remember_s=5.0, clock=clock)
    assert admit(door, None) is None
    key, text = make(engine)
    clock.now += 5.1
    assert turned(door, None).status == 401 and admit(door, text) is not None
    revoke_key(engine, key.key_id, 2)
    clock.now += 5.1
    assert turned(door, None).status == 401, "a door that was closed stays closed"


def test_on_another_address_nobody_comes_in_without_a_key(engine: Engine) -> None:
    assert turned(Door(lambda: engine, loopback=False), None).status == 401


def test_the_database_away_leaves_in_who_was_good_and_nobody_else(engine: Engine) -> None:
    _, text = make(engine)
    _, other = make(engine)
    clock = Seconds()
    away = False

    def database() -> Engine:
        if away:
            raise Retry("away")
        return engine

    class Unsteady(Door):
        def _database(self) -> Engine:
            return database()

    door = Unsteady(database, loopback=True, remember_s=5.0, clock=clock)
    assert admit(door, text) is not None
    away = True
    clock.now += 10
    assert admit(door, text) is not None
    assert turned(door, other).status == 503 and turned(door, other).retry_after_s == 1
    assert turned(door, None).status == 503, "nobody knows whether there is a key"
    clock.now += infra.door.GRACE_S
    assert turned(door, text).status == 503
    away = False
    clock.now += 10
    assert admit(door, text) is not None and admit(door, other) is not None


def test_guesses_are_told_to_come_later_when_there_are_too_many(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infra.door, "WAITING", 2)
    key, text = make(engine)
    door = Door(lambda: engine, loopback=False)
    assert admit(door, text) is not None
    turned_away = threading.Event()

    def verified_last(key: Key, secret: str) -> bool:
        return turned_away.wait(60) and is_secret_of(key, secret)

    monkeypatch.setattr(infra.door, "is_secret_of", verified_last)

    async def guess() -> list[Any]:
        asked = (door.admit(f"Bearer sk_{key.key_id}_{number:048x}", Scope.PRODUCER) for number in range(6))
        guesses = [asyncio.ensure_future(one) for one in asked]
        known = await door.admit(f"Bearer {text}", Scope.PRODUCER)
        while sum(one.done() for one in guesses) < 4:
            await asyncio.sleep(0.01)
        turned_away.set()
        return [*await asyncio.gather(*guesses, return_exceptions=True), known]

    *guessed, known = asyncio.run(guess())
    assert sorted(one.status for one in guessed) == [401, 401, 503, 503, 503, 503] and isinstance(known, Key)


def _slipstream(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infra.cli", "keys", *arguments, "--home", str(home)]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=100)


def test_the_command_makes_lists_and_revokes(tmp_path: Path) -> None:
    made = _slipstream(tmp_path, "create", "vs code", "--scope", "producer", "--scope", "viewer", "--rate", "50")
    assert made.returncode == 0 and "shown this once" in made.stderr and "it is the first" in made.stderr
    parsed = parse_key(made.stdout.strip())
    assert parsed is not None, "the key alone is on standard output"
    revoked = _slipstream(tmp_path, "revoke", parsed[0])
    assert revoked.returncode == 0 and parsed[0] in revoked.stderr
    listed = _slipstream(tmp_path, "list", "--json")
    (told,) = json.loads(listed.stdout)
    assert (told["id"], told["name"], told["scopes"], told["rate"]) == (parsed[0], "vs code", ["producer", "viewer"], 50.0)
    assert told["revoked"] and parsed[1] not in listed.stdout
    with sqlite3.connect(tmp_path / "slipstream.db") as database:
        assert parsed[1] not in str(database.execute("SELECT * FROM infra_keys").fetchall())
    assert _slipstream(tmp_path, "revoke", "nope").returncode == 2


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "bell\a", "x" * 129])
def test_a_name_that_nobody_can_read_is_refused(engine: Engine, name: str) -> None:
    with pytest.raises(StartError, match="the name of a key is 1 to 128 printable characters"):
        create_key(engine, name, [Scope.PRODUCER], None, 1)
    assert not any_key(engine)


def test_the_first_key_says_what_it_guards_and_which_scopes_guard_nothing_yet(tmp_path: Path) -> None:
    first = _slipstream(tmp_path, "create", "ide", "--scope", "producer")
    assert "nobody tells the collector events without a key of scope producer any more" in first.stderr
    assert "nothing asks" not in first.stderr
    other = _slipstream(tmp_path, "create", "board", "--scope", "viewer", "--scope", "operator")
    assert "it is the first" not in other.stderr
    assert "nothing asks for the scope operator or viewer yet: gateway and console answer whoever reaches them" in other.stderr


def test_the_list_of_keys_is_whole_at_80_columns(engine: Engine, tmp_path: Path) -> None:
    name = "the editor of the second floor"
    key, _ = create_key(engine, name, list(Scope), 1234567.0, 1_700_000_000_000)
    revoke_key(engine, key.key_id, 1_700_000_100_000)
    variables = {**os.environ, "COLUMNS": "80", "SLIPSTREAM_DB_URL": f"sqlite:///{tmp_path / 'db'}"}
    command = [sys.executable, "-m", "infra.cli", "keys", "list"]
    listed = subprocess.run(command, env=variables, cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=True).stdout
    assert all(len(line) <= 80 for line in listed.splitlines())
    for part in (key.key_id, *name.split(), *Scope, "1.23457e+06", "2023-11-14 22:13", "2023-11-14 22:15"):
        assert part in listed, listed
