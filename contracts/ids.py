"""Identities. A turn id contains its episode id, so an outcome that knows only its turn still routes to its episode.

`<episode_id>.<n>`: n is unique within the deployment for that episode; see `serving.capture` for how it is issued.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid

from contracts.errors import Poison

_WITHHELD = "-withheld"


def new_episode_id() -> str:
    return f"ep-{uuid.uuid4().hex}"


def turn_id(episode_id: str, n: str, consent: bool = True) -> str:
    """Without consent the id itself says so: whoever meets it later keeps nothing but a count, and needs no list to know."""
    return f"{episode_id}.{n}" if consent else f"{episode_id}.{n}{_WITHHELD}"


def is_withheld(turn: str) -> bool:
    """Whether the person behind this turn agreed to nothing being kept of it."""
    return turn.endswith(_WITHHELD)


def episode_of(turn: str) -> str:
    """The episode that a turn belongs to; raises `Poison` when the id has no number part."""
    episode, dot, n = turn.rpartition(".")
    if not (dot and episode and n):
        raise Poison("bad_turn_id", f"turn_id: expected <episode_id>.<n>, got {turn!r}")
    return episode


def subject_hash(key: bytes, subject: str) -> str:
    """A person's name as it is stored: keyed, so that nobody without the key can test a guess."""
    return hmac.new(key, subject.encode(), hashlib.sha256).hexdigest()[:32]


def sticky_fraction(salt: str, subject: str) -> float:
    """A subject's fixed place in [0, 1) within an experiment: below the share means candidate, so arms only ever grow."""
    digest = hashlib.sha256(f"{salt}\x00{subject}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
