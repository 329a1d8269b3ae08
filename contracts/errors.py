"""Errors named after the boundary at which they are caught, once, in a stage's loop.

`Poison` is buried in a dead letter with its reason, `Retry` waits and is tried again, `StartError` ends a process with one
sentence for the person who started it. Anything else crashes the process and the supervisor restarts it.
"""

from __future__ import annotations


class SlipstreamError(Exception):
    """Base of all errors raised on purpose."""


class Poison(SlipstreamError):
    """Input that can never be processed. `reason` is a short code to count by, `detail` a sentence for a person."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Retry(SlipstreamError):
    """Something outside is away for now; the same input will be tried again."""


class Fenced(SlipstreamError):
    """Another process took over this work; what was prepared here must not be written."""


class IllegalMove(SlipstreamError):
    """A lifecycle was asked for a step that its table does not have."""


class UnknownName(SlipstreamError):
    """A plugin, policy or file was named that does not exist; the message lists the ones that do."""


class StartError(SlipstreamError):
    """A process cannot start or go on: one sentence that says what is wrong and what to do."""
