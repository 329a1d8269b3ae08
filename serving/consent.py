"""Who asks, and whether anything of it may be kept.

Enters: what the client said of its user. Leaves: a `Person`: the hash to store, and a yes only when the client said yes and the
person has not opted out for good. Keys and register are looked after in the background: a request never waits for a file or a
database. What can go wrong: either is away, then what was known before holds.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import Retry, StartError
from contracts.ids import subject_hash
from infra.db.query import Engine as Database
from infra.people.register import OptOuts
from infra.secrets import load_secrets

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Person:
    subject: str
    consents: bool


class People:
    def __init__(self, home: Path, database: Database) -> None:
        """Raises `Retry` while the database is away: a gateway that does not know who opted out must not start."""
        self._home = home
        self._secrets = load_secrets(home)
        self._out = OptOuts(database)
        self._out.refresh()

    def meet(self, name: str | None, episode_id: str, consent: bool) -> Person:
        """Without a name each episode stands for itself."""
        secrets = self._secrets
        called = name if name is not None else f"episode {episode_id}"
        consents = consent and secrets.registered(called) not in self._out
        return Person(subject_hash(secrets.subject_key, called), consents)

    def refresh(self) -> None:
        """Rotated keys and changed minds."""
        try:
            self._secrets = load_secrets(self._home)
        except StartError as error:
            logger.error("the keys cannot be read, those from before hold: %s", error)
        try:
            self._out.refresh()
        except Retry as away:
            logger.debug("who opted out cannot be read, what was known before holds: %s", away)
