"""`slipstream subject`: what a person may ask for, done by whoever looks after the deployment.

Enters: a name, which is hashed at once and goes nowhere. Leaves: rows, a file, a sentence on standard error; with `--json` the
report of a deletion on standard output. Exit code 1: something of a deletion has to wait. Goes wrong: one sentence.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from contracts.errors import Retry
from infra.cli.chosen import as_it_runs, deployed
from infra.cli.sentences import say
from infra.clock import from_ms
from infra.db.engine import open_db, reading, writing
from infra.db.query import Engine
from infra.eventlog.open import open_log
from infra.eventlog.port import EventLog
from infra.people import deletion, register
from infra.people.export import export as write_export
from infra.people.names import checked
from infra.people.trace import TOPICS
from infra.secrets import Secrets, load_secrets, rotate
from infra.settings import Settings


def export(settings: Settings, name: str, to: Path | None) -> int:
    name, settings = checked(name), deployed(settings, with_names=True)
    secrets = load_secrets(settings.home)
    hashes, registered = secrets.hashes(name), secrets.registered(name)
    engine, log = open_db(settings.database), _log(settings)
    with reading(engine) as session:
        out = register.has_opted_out(session, registered)
    file = to or Path(f"subject-{hashes[0][:12]}.json")
    manifest = write_export(deletion.places(settings, engine, log), hashes, registered, out, _now_ms(), file)
    found = ", ".join(f"{number} {what}" for what, number in manifest["counts"].items() if number)
    say(f"{file} has {found or 'nothing: nothing is stored'} (looked for {_number(len(hashes), 'hash', 'hashes')} of this name)")
    _say_what_is_forgotten(engine, secrets)
    return 0


def delete(settings: Settings, name: str, as_json: bool) -> int:
    name, settings = checked(name), deployed(settings, with_names=True)
    secrets = load_secrets(settings.home)
    engine, log = open_db(settings.database), _log(settings)
    deletion_id = deletion.ask(engine, secrets.hashes(name), _now_ms())
    where = deletion.places(settings, engine, log)
    done = deletion.finish(where, deletion_id, _now_ms())
    told = deletion.report(engine, deletion_id)
    if as_json:
        print(json.dumps(dataclasses.asdict(told), allow_nan=False))
    else:
        _show(told)
    _say_what_is_forgotten(engine, secrets)
    if where.log_file is None:
        say("records in the broker are refused when they are read again, and go by their topics' retention")
    if not done:
        say("something has to wait (a spool that a process holds, or the event log); `up` goes on with it, or ask again")
    return 0 if done else 1


def set_opted_out(settings: Settings, name: str, out: bool) -> int:
    name, settings = checked(name), as_it_runs(settings)
    with writing(open_db(settings.database)) as session:
        register.set_opted_out(session, load_secrets(settings.home).registered(name), out, _now_ms())
    say("nothing of them is recorded any more, within seconds" if out else "what clients say about their consent counts again")
    return 0


def rotate_key(settings: Settings, forget_days: float | None) -> int:
    now, gone = rotate(deployed(settings, with_names=True).home, _now_ms(), forget_days)
    older = _number(len(now.subject_keys) - 1, "older one is", "older ones are")
    say(f"new turns are stored under the key {now.subject_keys[0].key_id}; {older} kept")
    if gone:
        names, them = ", ".join(key.key_id for key in gone), "it" if len(gone) == 1 else "them"
        say(f"forgotten: {names}; what was stored under {them} can no longer be found by name, neither to export nor to delete it")
    return 0


def _show(told: deletion.Report) -> None:
    say(", ".join(f"{number} {what}" for what, number in told.went.items()) or "nothing was found under this name")
    if not told.touched:
        say("no checkpoint was trained on anything of theirs")
        return
    table = Table(title="Checkpoints that their words are in")
    for heading in ("version", "state", "samples"):
        table.add_column(heading)
    for one in told.touched:
        table.add_row(one.version, one.state or "", str(one.samples) if one.samples else "by descent")
    Console().print(table)


def _say_what_is_forgotten(engine: Engine, secrets: Secrets) -> None:
    oldest_ms = secrets.subject_keys[-1].since_ms
    if oldest_ms is not None and deletion.anything_before(engine, oldest_ms):
        since = from_ms(oldest_ms).isoformat(timespec="seconds")
        say(f"keys were forgotten: what was stored before {since} cannot be found under this name any more, and goes by retention")


def _number(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _log(settings: Settings) -> EventLog | None:
    """None while it is away."""
    try:
        log = open_log(settings)
        log.ensure(TOPICS)
    except Retry as away:
        say(f"the event log is away: {away}")
        return None
    return log


def _now_ms() -> int:
    return int(time.time() * 1000)
