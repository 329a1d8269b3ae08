"""`python -m ingest collect` takes events over HTTP; `python -m ingest join` joins them."""

import sys

from infra.process import run_process
from ingest.collect.loop import collect
from ingest.join.loop import join

MAINS = {"collect": collect, "join": join}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in MAINS:
        sys.exit(f"usage: python -m ingest {'|'.join(MAINS)}")
    run_process(f"ingest-{sys.argv[1]}", MAINS[sys.argv[1]])
