"""Memory of a process includes what it started, and pages that several share are counted once where that can be told."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from infra.supervisor.memory import family, measure


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells shared pages apart")
def test_shared_pages_are_counted_once_over_a_family():
    """50 MB are written before the fork, so that both processes have them and neither alone."""
    text = "import os, sys\nheap = bytearray(b'x' * 50_000_000)\nos.fork()\nprint(end='.', flush=True)\nsys.stdin.read(1)"
    process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.read(2) == b".."
        assert len(family(process.pid)) == 2
        assert 50 < measure([process.pid])[process.pid] < 90
    finally:
        process.communicate(b"xx")


def test_a_process_that_is_gone_takes_nothing():
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert measure([process.pid, os.getpid()])[process.pid] == 0
    assert measure([os.getpid()])[os.getpid()] > 10
