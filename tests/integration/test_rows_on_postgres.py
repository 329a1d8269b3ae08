"""What is tested on SQLite holds on PostgreSQL: the same tests again, with another database under them.

Left out are tests that start processes of their own, which would open the file, and what this tier tests elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.postgres import Postgres

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "stream": ("unit/infra/test_stream.py", "unit/infra/test_dead_letters.py"),
    "joiner": ("unit/ingest/test_joiner.py", "unit/ingest/test_join_cases.py"),
    "joiner's properties": ("unit/ingest/test_join_properties.py", "unit/ingest/test_join_restarts.py"),
    "rewarding": ("unit/rewarding",),
    "registry": ("unit/registry",),
    "learner": ("unit/learner",),
    "flow": ("flow/test_event_to_sample.py", "flow/test_subject_delete.py"),
}
ON_FILES = ("unit/registry/test_process.py", "unit/learner/test_learner_jobs.py")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", PARTS)
def test_the_same_holds_on_postgresql(postgres: Postgres, part: str) -> None:
    command = [sys.executable, "-m", "pytest", "--timeout", "300", "-p", "tests.integration.on_postgres"]
    command += [f"tests/{place}" for place in PARTS[part]] + [f"--ignore=tests/{place}" for place in ON_FILES]
    environment = {**os.environ, "SLIPSTREAM_TEST_POSTGRES": postgres.base_url}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=890, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
