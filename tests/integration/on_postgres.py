"""A plugin of pytest: tests that open a SQLite database get one on PostgreSQL instead, and know nothing of it.

`-p tests.integration.on_postgres`, with the server's URL in `SLIPSTREAM_TEST_POSTGRES`. Each file name stands for one database,
made from a template when it is first opened.
"""

from __future__ import annotations

import os
import uuid
from collections import deque
from pathlib import Path

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

import infra.db.engine as engines

_open_db = engines.open_db
_base = os.environ["SLIPSTREAM_TEST_POSTGRES"]
_template = f"template_{uuid.uuid4().hex[:12]}"
_databases: dict[str, str] = {}
_opened: deque[Engine] = deque()

KEPT = 8
"""Engines that keep their connections; the server has 60."""


def _url(name: str) -> str:
    return f"{_base.rpartition('/')[0]}/{name}"


def _create(name: str, template: str | None = None) -> None:
    with create_engine(_base, isolation_level="AUTOCOMMIT", poolclass=NullPool).connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else "")))


def _open(url: str) -> Engine:
    if not url.startswith("sqlite:///"):
        return _open_db(url)
    if not _databases:
        _create(_template)
        _open_db(_url(_template)).dispose()
        _databases[""] = _template
    if url not in _databases:
        file = Path(url.removeprefix("sqlite:///"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()  # some tests copy the file of an empty database, which is as good as a new one
        name = f"t_{uuid.uuid4().hex[:12]}"
        _create(name, _template)
        _databases[url] = name
    engine = _open_db(_url(_databases[url]))
    _opened.append(engine)
    if len(_opened) > KEPT:
        _opened.popleft().dispose()  # tests open hundreds of databases and close none; one that is still used connects again
    return engine


engines.open_db = _open
