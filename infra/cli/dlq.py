"""`slipstream dlq`: what could not be read, why, and another try.

Enters: settings and places. Leaves: tables and sentences, and 0, or 1 when a place that was named holds no dead letter, or 2 when
what was named is no topic or not one thing. What can go wrong: the log or the database are away.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contracts.topics import ALL
from infra.cli.chosen import deployed
from infra.cli.sentences import say
from infra.db.engine import open_db
from infra.db.query import Engine
from infra.dead_letters import Buried, buried, put_back
from infra.eventlog.open import open_log
from infra.eventlog.port import EventLog
from infra.people.scan import withhold
from infra.settings import Settings

SHOWN_BYTES = 20_000
"""Of a value, at most; the rest is told as a number."""


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass
class _Tally:
    count: int = 0
    back: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    newest: datetime | None = None
    place: str = ""

    def add(self, each: Buried) -> None:
        self.count += 1
        self.back += each.retried_at is not None
        self.reasons[each.letter.reason] += 1
        if self.newest is None or each.letter.at >= self.newest:
            self.newest, self.place = each.letter.at, str(_place(each))


def list_buried(settings: Settings, topic: str | None) -> int:
    return _list_topics(settings) if topic is None else _list_places(settings, topic)


def _list_topics(settings: Settings) -> int:
    tallies: dict[str, _Tally] = defaultdict(_Tally)
    with _opened(settings) as (engine, log):
        for each in buried(engine, log, [topic.name for topic in ALL]):
            tallies[each.letter.topic].add(each)
    console = Console()
    if not tallies:
        console.print("No dead letters.")
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("topic", "dead letters", "put back", "reasons", "newest", "its place"):
        table.add_column(name, justify="right" if name in ("dead letters", "put back") else "left", overflow="fold")
    for topic, tally in tallies.items():
        reasons = ", ".join(f"{reason} {count}" for reason, count in tally.reasons.most_common())
        table.add_row(*map(Text, (topic, str(tally.count), str(tally.back), reasons, _moment(tally.newest), tally.place)))
    console.print(table)
    return 0


def _list_places(settings: Settings, topic: str) -> int:
    if not _is_topic(topic):
        return 2
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("partition", "offset"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("reason", "buried", "put back"):
        table.add_column(name, overflow="fold")
    with _opened(settings) as (engine, log):
        for each in buried(engine, log, [topic]):
            letter = each.letter
            moments = (_moment(letter.at), _moment(each.retried_at))
            table.add_row(*map(Text, (str(letter.partition), str(letter.offset), letter.reason, *moments)))
    console = Console()
    console.print(table if table.row_count else f"No dead letters of {topic}.", highlight=False)
    return 0


def show(settings: Settings, place: Place) -> int:
    if not _is_topic(place.topic):
        return 2
    with _opened(settings) as (engine, log):
        found = next((each for each in buried(engine, log, [place.topic]) if _place(each) == place), None)
    if found is None:
        return _nothing_at(place)
    letter, console = found.letter, Console()
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in (
        *(("place", str(place)), ("key", "none" if letter.key is None else letter.key), ("reason", letter.reason)),
        *(("detail", letter.detail), ("buried", _moment(letter.at)), ("put back", _moment(found.retried_at))),
        *(("size", f"{len(letter.value):,} bytes"),),
    ):
        table.add_row(Text(name, style="bold"), Text(value))
    console.print(table)
    console.print(withhold(readable(letter.value)), markup=False, highlight=False, soft_wrap=True)
    return 0


def retry(settings: Settings, topic: str | None, everything: bool, place: Place | None) -> int:
    """What was buried again after a retry lies at another place and may be tried again."""
    if (place is not None) + (topic is not None) + everything != 1:
        say("name a place (TOPIC PARTITION OFFSET), or a --topic, or --all, and only one of them")
        return 2
    named = place.topic if place is not None else topic
    if named is not None and not _is_topic(named):
        return 2
    topics = [each.name for each in ALL] if named is None else [named]
    console, done, before = Console(), 0, 0
    with _opened(settings) as (engine, log):
        found = (each for each in buried(engine, log, topics) if place in (None, _place(each)))
        for each, now in put_back(engine, log, found):
            done, before = done + now, before + (not now)
            if now:
                words = f"put back {_place(each)} ({each.letter.reason})"
                console.print(words, markup=False, highlight=False, soft_wrap=True)
    if place is not None and not done + before:
        return _nothing_at(place)
    console.print(f"{done} put back, {before} had been before." if before else f"{done} put back.", highlight=False)
    return 0


def readable(value: bytes) -> str:
    """JSON laid out; other text with its strange characters escaped; else hexadecimal."""
    shown = value[:SHOWN_BYTES]
    more = f"\n... and {len(value) - len(shown):,} more bytes" if len(value) > len(shown) else ""
    try:
        return json.dumps(json.loads(value), indent=2, ensure_ascii=False)[:SHOWN_BYTES].encode("utf-8", "replace").decode() + more
    except (ValueError, RecursionError):
        pass
    try:
        text = shown.decode("utf-8", "ignore" if more else "strict")
    except UnicodeDecodeError:
        return shown.hex(" ", 2) + more
    return "".join(char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text) + more


def _is_topic(name: str) -> bool:
    names = [each.name for each in ALL]
    if name not in names:
        say(f"there is no topic {name}; there are {', '.join(names)}")
    return name in names


def _place(each: Buried) -> Place:
    return Place(each.letter.topic, each.letter.partition, each.letter.offset)


def _moment(at: datetime | None) -> str:
    return "no" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _nothing_at(place: Place) -> int:
    say(f"there is no dead letter of {place}; `slipstream dlq list {place.topic}` names each place")
    return 1


@contextmanager
def _opened(settings: Settings) -> Iterator[tuple[Engine, EventLog]]:
    settings = deployed(settings)
    log = open_log(settings)
    try:
        yield open_db(settings.database), log
    finally:
        log.close()
