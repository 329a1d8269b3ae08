"""Children that die with their parent, however it dies. Linux only; elsewhere the next start ends what was left.

Enters: nothing. Leaves: a function to run in the child before its program. It must be called in the thread that lives longest:
Linux takes the end of the thread that forked for the end of the parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from functools import cache

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> Callable[[], None] | None:
    prctl = _prctl()
    if prctl is None:
        return None
    parent = os.getpid()

    def before_the_program() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return before_the_program


@cache
def _prctl() -> Callable[[int, int], int] | None:
    """Looked up before any fork: a child of `fork` should do as little as it can."""
    if sys.platform != "linux":
        return None
    try:
        found: Callable[[int, int], int] = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    return found
