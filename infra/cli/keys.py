"""`slipstream keys`: make a key, look at them, take one back.

Enters: a name, scopes, a rate; an id. Leaves: on `create` the key alone on standard output, so that a script can catch it, and
what to know about it on standard error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.cli.chosen import as_it_runs, deployed
from infra.cli.sentences import say
from infra.clock import from_ms
from infra.db.engine import open_db
from infra.keys import Key, Scope, create_key, list_keys, revoke_key
from infra.settings import Settings


def create(settings: Settings, name: str, scopes: Sequence[str], rate: float | None) -> int:
    engine = open_db(as_it_runs(settings).database)
    first = not list_keys(engine)
    key, text = create_key(engine, name, [Scope(scope) for scope in scopes], rate, _now_ms())
    print(text)
    say(f"this is the key {key.key_id} ({name}: {', '.join(sorted(key.scopes))}); it is shown this once, only a hash is kept")
    if first:
        say("it is the first: within seconds nobody tells the collector events without a key of scope producer any more")
    unguarded = sorted(key.scopes - {Scope.PRODUCER})
    if unguarded:
        say(f"nothing asks for the scope {' or '.join(unguarded)} yet: gateway and console answer whoever reaches them")
    return 0


def show(settings: Settings, as_json: bool) -> int:
    keys = list_keys(open_db(deployed(settings).database))
    if as_json:
        print(json.dumps([_told(key) for key in keys], allow_nan=False))
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("id", "name", "scopes", "events/s", "created", "revoked"):
        # On a narrow terminal only the name takes several lines.
        table.add_column(heading, overflow="fold", no_wrap=heading != "name")
    for key in keys:
        rate = "" if key.rate is None else f"{key.rate:g}"
        moments = (_minute(key.created_ms), _minute(key.revoked_ms))
        table.add_row(*map(Text, (key.key_id, key.name, "\n".join(sorted(key.scopes)), rate, *moments)))
    Console().print(table)
    return 0


def revoke(settings: Settings, key_id: str) -> int:
    key = revoke_key(open_db(deployed(settings).database), key_id, _now_ms())
    say(f"the key {key.key_id} ({key.name}) is revoked; every process refuses it within seconds")
    return 0


def _told(key: Key) -> dict[str, object]:
    return {
        "id": key.key_id,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "rate": key.rate,
        "created": _moment(key.created_ms),
        "revoked": _moment(key.revoked_ms) or None,
    }


def _moment(ms: int | None) -> str:
    return "" if ms is None else from_ms(ms).isoformat(timespec="seconds")


def _minute(ms: int | None) -> str:
    return "" if ms is None else f"{from_ms(ms):%Y-%m-%d %H:%M}"


def _now_ms() -> int:
    return int(time.time() * 1000)
