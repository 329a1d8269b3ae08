"""Logs of a process: one JSON object a line, with the stage's name; never the text of a person, and no secret that an error quotes.

Also the size of compute thread pools, which must be set before torch or numpy start theirs.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from datetime import UTC, datetime

from infra.settings import Settings


class _JsonLines(logging.Formatter):
    def __init__(self, stage: str) -> None:
        super().__init__()
        self._stage = stage

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "stage": self._stage,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        if record.levelno >= logging.WARNING or record.exc_info:
            _withhold(line, record)
        return json.dumps(line, ensure_ascii=False)


def _withhold(line: dict[str, str], record: logging.LogRecord) -> None:
    """What goes wrong may quote what somebody sent."""
    # Imported by the first line that says so: the library behind it takes a quarter of a second.
    from infra.people.scan import withhold

    line["message"] = withhold(line["message"])
    trace = line.get("trace")
    if trace is not None and (said := withhold(trace)) != trace and record.exc_info:
        kind, _, frames = record.exc_info
        line["trace"] = "".join(traceback.format_tb(frames)) + f"{kind.__name__ if kind else 'error'}: {said}"


def start_telemetry(stage: str, level: int = logging.INFO) -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_JsonLines(stage))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("kafka", "alembic", "httpx", "urllib3", "mlflow"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def limit_threads(settings: Settings) -> None:
    """Several pools on few cores fight; each process says how many threads it uses."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(settings.threads)
