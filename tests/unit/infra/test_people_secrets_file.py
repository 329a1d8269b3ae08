"""Keys that rotate: old files and the environment go on to work, older keys still find people, forgotten ones do not."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from contracts.errors import StartError
from contracts.ids import subject_hash
from infra.secrets import KEYS, REGISTER, load_secrets, rotate

DAY_MS = 86_400_000
OLD = {"subject_key": "ab" * 32, "redis_password": "secret"}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for name in (KEYS, REGISTER, "SLIPSTREAM_REDIS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def test_a_fresh_file_is_for_its_owner_only_and_stays_what_it_is(tmp_path):
    first, again = load_secrets(tmp_path), load_secrets(tmp_path)
    assert first == again and len(first.subject_keys) == 1 and len(first.subject_key) == 32
    assert (tmp_path / "secrets.json").stat().st_mode & 0o777 == 0o600


def test_a_file_of_an_earlier_release_keeps_its_hashes_and_its_register_over_a_rotation(tmp_path):
    (tmp_path / "secrets.json").write_text(json.dumps(OLD))
    before = load_secrets(tmp_path)
    assert before.hashes("ada") == (subject_hash(bytes.fromhex(OLD["subject_key"]), "ada"),)
    assert before.redis_password == "secret"
    after, gone = rotate(tmp_path, now_ms=10 * DAY_MS)
    assert gone == () and load_secrets(tmp_path) == after
    assert after.hashes("ada")[1:] == before.hashes("ada"), "the old one is still looked for"
    assert after.hashes("ada")[0] != before.hashes("ada")[0], "new turns are stored under the new one"
    assert after.registered("ada") == before.registered("ada") and after.redis_password == "secret"
    assert (tmp_path / "secrets.json").stat().st_mode & 0o777 == 0o600


def test_keys_have_ids_and_ages_and_those_out_of_use_for_long_are_forgotten(tmp_path):
    (tmp_path / "secrets.json").write_text(json.dumps(OLD))
    rotate(tmp_path, now_ms=100 * DAY_MS)
    second, _ = rotate(tmp_path, now_ms=130 * DAY_MS)
    assert [key.since_ms for key in second.subject_keys] == [130 * DAY_MS, 100 * DAY_MS, None]
    assert len({key.key_id for key in second.subject_keys}) == 3
    third, gone = rotate(tmp_path, now_ms=150 * DAY_MS, forget_days=30)
    assert [key.key_id for key in gone] == [second.subject_keys[2].key_id], "in use until day 100; the other until day 130"
    assert len(third.subject_keys) == 3
    assert subject_hash(bytes.fromhex(OLD["subject_key"]), "ada") not in load_secrets(tmp_path).hashes("ada")
    fourth, gone = rotate(tmp_path, now_ms=151 * DAY_MS, forget_days=0)
    assert len(fourth.subject_keys) == 1 and len(gone) == 3
    assert fourth.registered("ada") == second.registered("ada"), "who opted out is known for ever"
    stored = (tmp_path / "secrets.json").read_text()
    assert not any(key.key.hex() in stored for key in gone), "destroyed, not only unused"


def test_the_environment_wins_with_one_key_or_several(tmp_path, monkeypatch):
    load_secrets(tmp_path)
    monkeypatch.setenv(KEYS, "cd" * 32)
    one = load_secrets(tmp_path)
    assert one.subject_key == bytes.fromhex("cd" * 32)
    other = load_secrets(tmp_path / "another-machine")
    assert other.registered("ada") == one.registered("ada"), "machines that share a key share the register"
    with pytest.raises(StartError) as refused:
        rotate(tmp_path, 0)
    advice = dict(word.split("=", 1) for word in str(refused.value).split() if "=" in word)
    monkeypatch.setenv(KEYS, advice[KEYS])
    with pytest.raises(StartError, match=REGISTER):
        load_secrets(tmp_path)
    monkeypatch.setenv(REGISTER, advice[REGISTER])
    rotated = load_secrets(tmp_path)
    assert rotated.hashes("ada")[1] == one.hashes("ada")[0] and rotated.registered("ada") == one.registered("ada")


def test_what_makes_no_sense_is_one_sentence(tmp_path, monkeypatch):
    for broken in ("{", "[]", json.dumps({"redis_password": "x"}), json.dumps({**OLD, "subject_key": "zz"})):
        (tmp_path / "secrets.json").write_text(broken)
        with pytest.raises(StartError, match="damaged"):
            load_secrets(tmp_path)
    (tmp_path / "secrets.json").write_text(json.dumps(OLD))
    for broken in ("not hexadecimal", "00" * 15):
        monkeypatch.setenv(KEYS, broken)
        with pytest.raises(StartError, match=f"{KEYS}.*hexadecimal"):
            load_secrets(tmp_path)


def _rotate(home: Path, now_ms: int) -> None:
    rotate(home, now_ms)


def test_rotations_at_once_lose_no_key(tmp_path):
    load_secrets(tmp_path)
    at_once = multiprocessing.get_context("fork")
    several = [at_once.Process(target=_rotate, args=(tmp_path, n)) for n in range(6)]
    for one in several:
        one.start()
    for one in several:
        one.join()
    assert len({key.key for key in load_secrets(tmp_path).subject_keys}) == 7
    assert not list(tmp_path.glob(".secrets-*"))
