"""How every stage's process starts and ends: settings, telemetry, a stop flag set by SIGTERM or SIGINT, one sentence on failure.

Enters: the stage's name and its main function. Leaves: an exit code: 0 stopped as asked, 2 could not start (`StartError`, one
line on standard error; the supervisor shows it), 1 crashed with its trace in the log, or begins again
because something outside is away; the supervisor restarts it.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable

from contracts.errors import Retry, StartError, UnknownName
from infra.settings import Settings, load_settings
from infra.telemetry import limit_threads, start_telemetry

logger = logging.getLogger(__name__)

Main = Callable[[Settings, threading.Event], None]


def keep_private() -> None:
    """What this process and its children write from now on is its owner's alone: it holds what people wrote."""
    os.umask(0o077)


def run_process(stage: str, main: Main) -> None:
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    keep_private()
    start_telemetry(stage)
    try:
        settings = load_settings()
        limit_threads(settings)
        logger.info("%s starts", stage)
        main(settings, stop)
    except (StartError, UnknownName) as error:
        logger.error("%s", error)
        print(f"{stage}: {error}", file=sys.stderr)
        sys.exit(2)
    except Retry as away:
        logger.warning("%s begins again: %s", stage, away)
        sys.exit(1)
    except Exception:
        logger.exception("%s crashed", stage)
        sys.exit(1)
    logger.info("%s stopped", stage)
    # What is left is the interpreter walking every object of torch and MLflow to find cycles, more than a second of a core.
    gc.freeze()
