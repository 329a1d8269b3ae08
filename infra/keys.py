"""Keys: made once, shown once, stored as argon2 hashes, revoked for good.

Enters: a name, scopes, perhaps a rate. Leaves: `sk_<id>_<secret>` and a row that cannot be turned back into it. What can go wrong:
`UnknownName` for an id that nobody made; `Retry` when the database is away. Who may come in is `infra.door`'s business.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from contracts.errors import StartError, UnknownName
from infra.db.engine import reading, writing
from infra.db.query import Engine, col, select
from infra.db.tables.keys import KeyRow

OWN_KEY = "SLIPSTREAM_KEY"
"""The variable in which a program finds the key that it sends."""

LONGEST_NAME = 128

_FORM = re.compile(r"sk_([0-9a-f]{12})_([0-9a-f]{48})")
_HASHER = PasswordHasher()


class Scope(StrEnum):
    """What a key is for: sending events, asking for answers, changing things, looking at things.

    Today only the collector asks for a key, one for sending events; nothing asks for the others yet.
    """

    PRODUCER = "producer"
    CLIENT = "client"
    OPERATOR = "operator"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class Key:
    """`rate`: events per second, None for no limit. `hashed` is argon2's word for the secret."""

    key_id: str
    name: str
    scopes: frozenset[Scope]
    rate: float | None
    created_ms: int
    revoked_ms: int | None
    hashed: str


def create_key(engine: Engine, name: str, scopes: Iterable[Scope], rate: float | None, now_ms: int) -> tuple[Key, str]:
    """The key and, this once, the text that its holder sends."""
    key_id, secret = secrets.token_hex(6), secrets.token_hex(24)
    wanted = frozenset(scopes)
    if not (name.strip() and len(name) <= LONGEST_NAME and name.isprintable()):
        raise StartError(f"the name of a key is 1 to {LONGEST_NAME} printable characters on one line, not {name[:40]!r}")
    if not wanted:
        raise StartError(f"a key needs a scope, one or more of {', '.join(Scope)}")
    if rate is not None and not 0 < rate < 1e9:
        raise StartError(f"a rate is a number of events per second above 0, not {rate}")
    row = KeyRow(
        key_id=key_id,
        name=name,
        scopes=",".join(sorted(wanted)),
        hashed=_HASHER.hash(secret),
        rate=rate,
        created_ms=now_ms,
        revoked_ms=None,
    )
    with writing(engine) as session:
        session.add(row)
    return _key(row), f"sk_{key_id}_{secret}"


def list_keys(engine: Engine) -> list[Key]:
    """All that were ever made, oldest first."""
    with reading(engine) as session:
        return [_key(row) for row in session.exec(select(KeyRow).order_by(col(KeyRow.created_ms), col(KeyRow.key_id))).all()]


def revoke_key(engine: Engine, key_id: str, now_ms: int) -> Key:
    """A key that was revoked before keeps its first time."""
    with writing(engine) as session:
        row = session.get(KeyRow, key_id, with_for_update=True)
        if row is None:
            known = ", ".join(session.exec(select(KeyRow.key_id).order_by(col(KeyRow.created_ms))).all()) or "none"
            raise UnknownName(f"no key has the id {key_id!r}; there are: {known}")
        row.revoked_ms = now_ms if row.revoked_ms is None else row.revoked_ms
        session.add(row)
    return _key(row)


def find_key(engine: Engine, key_id: str) -> Key | None:
    with reading(engine) as session:
        row = session.get(KeyRow, key_id)
        return None if row is None else _key(row)


def any_key(engine: Engine) -> bool:
    """Whether a key was ever made; a revoked one counts, for a door that was closed stays closed."""
    with reading(engine) as session:
        return session.exec(select(KeyRow.key_id).limit(1)).first() is not None


def parse_key(text: str) -> tuple[str, str] | None:
    """Id and secret of something that has a key's form."""
    found = _FORM.fullmatch(text)
    return None if found is None else (found[1], found[2])


def is_secret_of(key: Key, secret: str) -> bool:
    """Takes about 50 milliseconds and 64 MiB, on purpose: a stolen table is of little use."""
    try:
        return _HASHER.verify(key.hashed, secret)
    except (Argon2Error, InvalidHashError):
        return False


def _key(row: KeyRow) -> Key:
    scopes = frozenset(Scope(scope) for scope in row.scopes.split(",") if scope in set(Scope))
    return Key(row.key_id, row.name, scopes, row.rate, row.created_ms, row.revoked_ms, row.hashed)
