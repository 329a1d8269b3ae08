"""One method for each kind of thing that can happen, with its fields and their units.

Enters: a turn's id and the fields. Leaves: the event's id, or None when it was not taken in, which is counted. Nothing raises,
not even a call with wrong arguments (`bad_call`); a type checker finds those earlier. A test holds this list against the
collector's own (`contracts.outcome.KINDS`).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from slipstream_events.event import About

P = ParamSpec("P")
T = TypeVar("T", bound="Teller")


def harmless(method: Callable[Concatenate[T, P], str | None]) -> Callable[Concatenate[T, P], str | None]:
    @functools.wraps(method)
    def call(self: T, /, *args: P.args, **kwargs: P.kwargs) -> str | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.spoiled(error)
            return None

    return call


class Teller(ABC):
    """`turn`: the `turn_id` that the gateway gave with its answer. An event of a whole episode names `episode=` instead."""

    @abstractmethod
    def tell(self, kind: str, turn: str | None = None, data: dict[str, Any] | None = None, **about: Unpack[About]) -> str | None:
        """An event of any kind, also one that this version has no method for."""

    @abstractmethod
    def spoiled(self, error: Exception) -> None:
        """Count a call that could not become an event."""

    @harmless
    def shown(self, turn: str | None = None, **about: Unpack[About]) -> str | None:
        """The answer was on screen."""
        return self.tell("shown", turn, None, **about)

    @harmless
    def replayed(self, turn: str | None = None, **about: Unpack[About]) -> str | None:
        """The same answer came on screen again; no further exposure."""
        return self.tell("replayed", turn, None, **about)

    @harmless
    def accepted(self, turn: str | None = None, *, characters: int, whole: bool = True, **about: Unpack[About]) -> str | None:
        """Taken over: all of it, or (`whole` false) its first `characters`."""
        return self.tell("accepted", turn, {"characters": characters, "whole": whole}, **about)

    @harmless
    def rejected(self, turn: str | None = None, **about: Unpack[About]) -> str | None:
        """Turned down on purpose."""
        return self.tell("rejected", turn, None, **about)

    @harmless
    def dismissed(self, turn: str | None = None, **about: Unpack[About]) -> str | None:
        """It went away without a decision."""
        return self.tell("dismissed", turn, None, **about)

    @harmless
    def typed_through(self, turn: str | None = None, *, characters: int | None = None, **about: Unpack[About]) -> str | None:
        """Not accepted, yet typed by hand: `characters` of it."""
        return self.tell("typed_through", turn, {"characters": characters}, **about)

    @harmless
    def copied(self, turn: str | None = None, *, characters: int | None = None, **about: Unpack[About]) -> str | None:
        """Text of the answer went to the clipboard."""
        return self.tell("copied", turn, {"characters": characters}, **about)

    @harmless
    def edited(self, turn: str | None = None, *, surviving: float, **about: Unpack[About]) -> str | None:
        """Accepted text was changed; `surviving` (0 to 1) of its characters are still there."""
        return self.tell("edited", turn, {"surviving": surviving}, **about)

    @harmless
    def reverted(self, turn: str | None = None, **about: Unpack[About]) -> str | None:
        """Accepted text was taken out again."""
        return self.tell("reverted", turn, None, **about)

    @harmless
    def persisted(self, turn: str | None = None, *, after_s: float, surviving: float, **about: Unpack[About]) -> str | None:
        """A check `after_s` seconds after acceptance: `surviving` (0 to 1) of the accepted text is still in the file."""
        return self.tell("persisted", turn, {"after_s": after_s, "surviving": surviving}, **about)

    @harmless
    def committed(self, turn: str | None = None, *, surviving: float | None = None, **about: Unpack[About]) -> str | None:
        """Accepted text is part of a commit."""
        return self.tell("committed", turn, {"surviving": surviving}, **about)

    @harmless
    def merged(self, turn: str | None = None, *, surviving: float | None = None, **about: Unpack[About]) -> str | None:
        """Accepted text reached the main line."""
        return self.tell("merged", turn, {"surviving": surviving}, **about)

    @harmless
    def follow_up(self, turn: str | None = None, *, text: str, **about: Unpack[About]) -> str | None:
        """What the person wrote next, in the same conversation."""
        return self.tell("follow_up", turn, {"text": text}, **about)

    @harmless
    def thumbs(self, turn: str | None = None, *, up: bool, **about: Unpack[About]) -> str | None:
        """An explicit opinion; a later one replaces an earlier one."""
        return self.tell("thumbs", turn, {"up": up}, **about)

    @harmless
    def tool_result(
        self, turn: str | None = None, *, tool: str, valid: bool, error: str | None = None, **about: Unpack[About]
    ) -> str | None:
        """A tool that the answer called. `valid` false: the call was malformed; `error`: the kind of failure."""
        return self.tell("tool_result", turn, {"tool": tool, "valid": valid, "error": error}, **about)

    @harmless
    def test_result(
        self, turn: str | None = None, *, passed: int | None, failed: int | None, error: str | None = None, **about: Unpack[About]
    ) -> str | None:
        """Tests that ran on the changed code; both counts None and an `error` when they could not run."""
        return self.tell("test_result", turn, {"passed": passed, "failed": failed, "error": error}, **about)

    @harmless
    def build_result(self, turn: str | None = None, *, ok: bool, errors: int | None = None, **about: Unpack[About]) -> str | None:
        """A compiler's or linter's verdict on the changed code."""
        return self.tell("build_result", turn, {"ok": ok, "errors": errors}, **about)

    @harmless
    def latency(
        self, turn: str | None = None, *, first_ms: float, last_ms: float | None = None, **about: Unpack[About]
    ) -> str | None:
        """Milliseconds that the person waited for the first characters, and for the last."""
        return self.tell("latency", turn, {"first_ms": first_ms, "last_ms": last_ms}, **about)

    @harmless
    def error(self, turn: str | None = None, *, error: str, **about: Unpack[About]) -> str | None:
        """The answer could not be used: a time-out, a broken stream, an edit that does not apply."""
        return self.tell("error", turn, {"error": error}, **about)

    @harmless
    def closed(self, turn: str | None = None, **about: Unpack[About]) -> str | None:
        """Nothing more is to be expected for this episode."""
        return self.tell("closed", turn, None, **about)
