"""A collector with small limits over a log of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from infra.eventlog.embedded import EmbeddedLog
from tests.collector import collecting


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    made = EmbeddedLog(tmp_path / "log.db")
    yield made
    made.close()


@pytest.fixture
def client(log: EmbeddedLog, tmp_path: Path) -> Iterator[TestClient]:
    with collecting(log, tmp_path, max_event_bytes=1000, max_batch_events=50, max_body_kb=20) as made:
        yield made
