"""`python -m ingest replay SOURCE FILE`: recorded traffic goes through the service, and what it made of it is shown.

Enters: arguments and `SLIPSTREAM_*`; the deployment must be running. Leaves: an exit code: 0 everything was taken and joined (or
is gone with its person), 1 something was not, 2 it could not start, 130 interrupted (the same command goes on).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from contracts.errors import SlipstreamError, UnknownName
from contracts.topics import TURNS
from infra.db.engine import open_db, reading
from infra.db.query import Engine
from infra.eventlog.open import open_log
from infra.keys import OWN_KEY
from infra.people.register import OptOuts
from infra.policies import load_policies, policy_folder
from infra.secrets import Secrets, load_secrets
from infra.settings import Settings, load_settings
from infra.supervisor.program import LOOPBACK
from ingest.replay.collector import Collector, Refused
from ingest.replay.loop import Teller, wait_at_rest
from ingest.replay.pace import Pace
from ingest.replay.progress import Progress
from ingest.replay.readback import episodes
from ingest.replay.recording import Recording, read_recording
from ingest.replay.screen import Screen, show_facts, show_refused
from ingest.replay.source import SOURCES, Answer, Event, Source
from ingest.replay.translate import Replay

_STOPPED = 130


def main(arguments: Sequence[str]) -> int:
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    try:
        return replay(arguments, load_settings(), stop, Console())
    except SlipstreamError as error:
        print(f"slipstream: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ingest replay", description="Recorded traffic, once more.")
    parser.add_argument("source")
    parser.add_argument("file", type=Path)
    parser.add_argument("--policy", help="default: the one called as the source")
    parser.add_argument("--speed", type=float, default=1000.0, help="0: as fast as possible")
    parser.add_argument("--longest-pause", type=float, help="recorded seconds")
    parser.add_argument("--wait", type=float, default=120.0, help="seconds, at most, for the join; 0: do not wait")
    parser.add_argument("--anew", action="store_true", help="from the first line on")
    return parser


def replay(arguments: Sequence[str], settings: Settings, stop: threading.Event, console: Console) -> int:
    asked = _parser().parse_args(arguments)
    source = SOURCES.get(asked.source)()
    recording = read_recording(source, asked.file)
    policy = _policy(asked.policy or asked.source, settings)
    host = LOOPBACK if settings.host in ("0.0.0.0", "::", "") else settings.host
    collector = Collector(f"http://{host}:{settings.collector_port}/v1/events", os.environ.get(OWN_KEY))
    collector.look()
    engine = open_db(settings.database)
    how = _how(asked.source, policy, recording, load_secrets(settings.home), engine)
    if how.withheld:
        console.print(
            f"{len(how.withheld)} episodes are of people who opted out: they are counted, and nothing else of them is kept."
        )
    show_refused(console, _tell(asked, settings, how, recording, collector, stop, console))
    if stop.is_set():
        console.print("Stopped; the same command goes on from here.")
        return _STOPPED
    return _read_back(asked.wait, engine, how, source, recording, stop, console)


def _how(source: str, policy: str, recording: Recording, secrets: Secrets, engine: Engine) -> Replay:
    """With the episodes of those who do not want to be recorded here."""
    out = OptOuts(engine)
    out.refresh()
    how = Replay(source, policy, secrets.subject_key)
    answers = (one for one in recording.told if isinstance(one, Answer))
    withheld = frozenset(answer.episode for answer in answers if secrets.registered(how.person(answer.person)) in out)
    return replace(how, withheld=withheld)


def _tell(
    asked: argparse.Namespace,
    settings: Settings,
    how: Replay,
    recording: Recording,
    collector: Collector,
    stop: threading.Event,
    console: Console,
) -> list[Refused]:
    told = recording.told
    progress = Progress(settings.home, how.source, how.policy, recording.digest)
    done = 0 if asked.anew else min(progress.read(), len(told))
    if done:
        console.print(f"Going on after step {done:,} of {len(told):,}.", highlight=False)
    log = open_log(settings)
    try:
        log.ensure([TURNS])
        with Screen(console, f"Telling {how.policy} of {asked.file.name}", len(told), done) as screen:
            refused = Teller(how, log, collector, progress, screen).tell(told, done, Pace(asked.speed, asked.longest_pause), stop)
    finally:
        log.close()
    if not stop.is_set():
        progress.clear()
    return refused


def _read_back(
    wait_s: float, engine: Engine, how: Replay, source: Source, recording: Recording, stop: threading.Event, console: Console
) -> int:
    kept = [one for one in recording.told if one.episode not in how.withheld]
    events = {how.event_id(one.event_id) for one in kept if isinstance(one, Event)}
    with Screen(console, "Waiting for the join", len(events), 0) as screen:
        found = wait_at_rest(engine, events, wait_s, screen, stop)
    with reading(engine) as session:
        facts = source.facts(episodes(session, {how.episode_id(one.episode) for one in kept}))
    show_facts(console, f"{how.source} as {how.policy}", facts)
    if found.refused:
        console.print(f"{found.refused:,} events were refused; the console says why.", style="red", highlight=False)
    if found.gone:
        words = "of people who were deleted, or were kept long enough: they were counted, and nothing else of them is kept"
        console.print(f"{found.gone:,} events are {words}.", highlight=False)
    if found.at_rest < len(events):
        waiting = len(events) - found.at_rest
        console.print(f"{waiting:,} events are not joined yet; the figures are of what is.", style="yellow", highlight=False)
    return 0 if found.joined + found.gone == len(events) else 1


def _policy(name: str, settings: Settings) -> str:
    known = load_policies(settings)
    if name not in known:
        raise UnknownName(
            f"no policy is called {name!r} in {policy_folder(settings)}; there are: {', '.join(sorted(known))}. "
            "Name one with --policy, or run the service with one for recordings (docs/replay.md)"
        )
    return name
