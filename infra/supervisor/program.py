"""What the supervisor needs to know about one process, as a value.

Enters: nothing. Leaves: frozen records that a table lists; nothing here starts anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class AnswersHttp:
    """Ready when `GET path` answers 200."""

    port: int
    path: str = "/health"
    host: str = LOOPBACK


@dataclass(frozen=True)
class AnswersPing:
    """Ready when a Redis server lets us in and answers a ping."""

    port: int
    password: str = field(repr=False)
    host: str = LOOPBACK


@dataclass(frozen=True)
class StaysAlive:
    """Ready when it has lived for so long."""

    seconds: float = 1.0


Readiness = AnswersHttp | AnswersPing | StaysAlive


@dataclass(frozen=True)
class Program:
    """One process. `needs` are ready before it starts and stop after it.

    A `foreground` program shares the terminal (and so Ctrl-C) with the supervisor, and when it ends by itself everything ends.
    """

    name: str
    command: tuple[str, ...]
    ready: Readiness = StaysAlive()
    needs: tuple[str, ...] = ()
    grace_s: float = 6.0
    foreground: bool = False
    stdin: str | None = field(default=None, repr=False)
