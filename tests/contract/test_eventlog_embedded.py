"""The embedded event log keeps the promise of the port."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.eventlog_suite import EventLogSuite


class TestEmbedded(EventLogSuite):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'log.db'}"
