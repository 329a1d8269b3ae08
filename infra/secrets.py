"""Secrets of this deployment: made once, kept in a file that only its owner reads, never defaulted.

`SLIPSTREAM_SUBJECT_KEY` and `SLIPSTREAM_REDIS_PASSWORD` win over the file, so that several machines can share them.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import StartError


@dataclass(frozen=True)
class Secrets:
    """`subject_key` hashes people's names before they are stored; `redis_password` guards the embedded Redis."""

    subject_key: bytes
    redis_password: str


def load_secrets(home: Path) -> Secrets:
    """Read the file, or make it; several processes may do so at once and agree."""
    file = home / "secrets.json"
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            fresh = {"subject_key": secrets.token_hex(32), "redis_password": secrets.token_hex(24)}
            draft = home / f".secrets-{os.getpid()}"
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(fresh), encoding="utf-8")
            try:
                os.link(draft, file)
            except FileExistsError:
                pass
            draft.unlink()
        kept = json.loads(file.read_text(encoding="utf-8"))
        key = os.environ.get("SLIPSTREAM_SUBJECT_KEY", kept["subject_key"])
        return Secrets(bytes.fromhex(key), os.environ.get("SLIPSTREAM_REDIS_PASSWORD", kept["redis_password"]))
    except OSError as error:
        raise StartError(f"cannot read or write {file}: {error.strerror}; is {home} yours to write?") from error
    except (ValueError, KeyError) as error:
        raise StartError(f"{file} is damaged ({error}); restore it from a backup: people's hashes depend on it") from error
