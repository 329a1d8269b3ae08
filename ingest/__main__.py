"""`python -m ingest collect` takes events over HTTP; `join` joins them, `retain` lets go of them; `replay SOURCE FILE`."""

import sys

from infra.process import run_process


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "collect":
        from ingest.collect.loop import collect

        run_process("ingest-collect", collect)
    elif what == "join":
        from ingest.join.loop import join

        run_process("ingest-join", join)
    elif what == "retain":
        from ingest.retain.loop import retain

        run_process("ingest-retain", retain)
    elif what == "replay":
        from ingest.replay.main import main as replay

        sys.exit(replay(sys.argv[2:]))
    else:
        sys.exit("usage: python -m ingest collect|join|retain|replay")


if __name__ == "__main__":
    main()
