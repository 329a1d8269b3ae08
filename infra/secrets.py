"""Secrets of this deployment: made once, kept in a file that only its owner reads, never defaulted.

Enters: the folder, or the environment, which wins: `SLIPSTREAM_SUBJECT_KEY` (several keys separated by commas, the newest first),
`SLIPSTREAM_REGISTER_KEY`, `SLIPSTREAM_REDIS_PASSWORD`; so several machines can share them. Leaves: `Secrets`. What can go wrong:
`StartError` when the file cannot be used or the environment's keys do not belong together.

Subject keys rotate: the newest hashes whoever comes now, older ones are kept so that what was stored under them can be found
again, until they are forgotten on purpose. The register key does not rotate: it hashes the names of those who opted out, and
must still know them when every subject key of that day is forgotten.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from contracts.errors import StartError
from contracts.ids import subject_hash
from infra.disk import sync

KEYS = "SLIPSTREAM_SUBJECT_KEY"
REGISTER = "SLIPSTREAM_REGISTER_KEY"
PASSWORD = "SLIPSTREAM_REDIS_PASSWORD"
_SHORTEST = 16


@dataclass(frozen=True)
class SubjectKey:
    """`key_id` names a key without giving it away; `since_ms` is None where nobody wrote down when it came into use."""

    key_id: str
    key: bytes
    since_ms: int | None


@dataclass(frozen=True)
class Secrets:
    """`subject_keys`: newest first, at least one. `redis_password` guards the embedded Redis."""

    subject_keys: tuple[SubjectKey, ...]
    register_key: bytes
    redis_password: str

    @property
    def subject_key(self) -> bytes:
        """The one that new turns are stored under."""
        return self.subject_keys[0].key

    def hashes(self, subject: str) -> tuple[str, ...]:
        """Everything that this name may be stored as, newest key first."""
        return tuple(subject_hash(key.key, subject) for key in self.subject_keys)

    def registered(self, subject: str) -> str:
        """This name in the register of those who opted out."""
        return subject_hash(self.register_key, subject)


def load_secrets(home: Path) -> Secrets:
    """Read the file, or make it; several processes may do so at once and agree."""
    kept = _read(home)
    try:
        stored = [
            SubjectKey(str(one["id"]), bytes.fromhex(one["key"]), one["since_ms"]) for one in kept.get("subject_keys", ())
        ] or [_known(kept["subject_key"])]
        register = bytes.fromhex(kept["register_key"]) if "register_key" in kept else _register_of(stored[-1].key)
        password = str(kept["redis_password"])
    except (ValueError, KeyError, TypeError) as error:
        raise StartError(f"{_file(home)} is damaged ({error}); restore it from a backup: people's hashes depend on it") from error
    return _with_environment(Secrets(tuple(stored), register, password))


def rotate(home: Path, now_ms: int, forget_days: float | None = None) -> tuple[Secrets, tuple[SubjectKey, ...]]:
    """Make a new newest key, and forget those that have been out of use for so many days; answers what is left and what went.

    Raises `StartError` where the keys come from the environment: nothing here can change that.
    """
    if os.environ.get(KEYS):
        raise StartError(f"the keys come from {KEYS}; put a new one in front of it, everywhere: {_advice(home)}")
    with _alone(home):
        before = load_secrets(home)
        fresh = SubjectKey(_id(key := secrets.token_bytes(32)), key, now_ms)
        keys = (fresh, *before.subject_keys)
        # A key is out of use since its successor came.
        gone = tuple(
            old
            for newer, old in pairwise(keys)
            if forget_days is not None and (newer.since_ms or 0) <= now_ms - int(forget_days * 86_400_000)
        )
        after = replace(before, subject_keys=tuple(key for key in keys if key not in gone))
        _write(home, _described(after) | {"redis_password": _read(home)["redis_password"]})
    return after, gone


def _with_environment(found: Secrets) -> Secrets:
    found = replace(found, redis_password=os.environ.get(PASSWORD, found.redis_password))
    given, register = os.environ.get(KEYS) or None, os.environ.get(REGISTER) or None  # compose hands on what is not set as ""
    try:
        if register is not None:
            found = replace(found, register_key=bytes.fromhex(register))
        if given is not None:
            keys = tuple(_known(part.strip()) for part in given.split(","))
            if register is None and len(keys) > 1:
                raise StartError(
                    f"{KEYS} has {len(keys)} keys, so {REGISTER} must be set too; `slipstream subject rotate-key` says to what"
                )
            found = replace(found, subject_keys=keys, register_key=found.register_key if register else _register_of(keys[-1].key))
    except ValueError as error:
        raise StartError(f"{KEYS} and {REGISTER} are hexadecimal ({error})") from error
    return found


def _advice(home: Path) -> str:
    """What to set, from keys that are set now."""
    now = load_secrets(home)
    keys = ",".join([secrets.token_hex(32), *(key.key.hex() for key in now.subject_keys)])
    return f"{KEYS}={keys} {REGISTER}={now.register_key.hex()}"


def _read(home: Path) -> dict[str, Any]:
    file = _file(home)
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            key = secrets.token_bytes(32)
            first = SubjectKey(_id(key), key, int(time.time() * 1000))
            made = Secrets((first,), secrets.token_bytes(32), secrets.token_hex(24))
            draft = _draft(home, _described(made))
            try:
                os.link(draft, file)
            except FileExistsError:
                pass
            draft.unlink()
        kept = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartError(f"cannot read or write {file}: {error.strerror}; is {home} yours to write?") from error
    except ValueError as error:
        raise StartError(f"{file} is damaged ({error}); restore it from a backup: people's hashes depend on it") from error
    if not isinstance(kept, dict):
        raise StartError(f"{file} is damaged (not an object); restore it from a backup: people's hashes depend on it")
    return kept


def _write(home: Path, content: dict[str, Any]) -> None:
    """Whole or not at all: a key that is lost cannot be made again."""
    try:
        os.replace(_draft(home, content), _file(home))
        sync(home)
    except OSError as error:
        raise StartError(f"cannot write {_file(home)}: {error.strerror}") from error


def _draft(home: Path, content: dict[str, Any]) -> Path:
    draft = home / f".secrets-{os.getpid()}-{secrets.token_hex(4)}"
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    return draft


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Two rotations at once would lose one of the new keys."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".secrets.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _described(made: Secrets) -> dict[str, Any]:
    keys = [{"id": key.key_id, "key": key.key.hex(), "since_ms": key.since_ms} for key in made.subject_keys]
    return {"subject_keys": keys, "register_key": made.register_key.hex(), "redis_password": made.redis_password}


def _known(text: str) -> SubjectKey:
    key = bytes.fromhex(text)
    if len(key) < _SHORTEST:
        raise ValueError(f"a key of {len(key)} bytes, at least {_SHORTEST} are needed")
    return SubjectKey(_id(key), key, None)


def _id(key: bytes) -> str:
    return f"k-{hashlib.sha256(b'id of ' + key).hexdigest()[:12]}"


def _register_of(key: bytes) -> bytes:
    """Where no register key was ever written down: the same on every machine that has this key."""
    return hmac.new(key, b"register of those who opted out", hashlib.sha256).digest()


def _file(home: Path) -> Path:
    return home / "secrets.json"
