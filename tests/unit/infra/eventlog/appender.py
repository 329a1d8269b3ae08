"""A process that appends, to be run by the hundred and killed.

`python -m tests.unit.infra.eventlog.appender PATH TOPIC NAME BATCH CALLS`: appends `NAME-0`, `NAME-1`, ... under the key NAME
and prints, after each call that returned, how many are in the log. CALLS 0: for ever.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from infra.eventlog.embedded import EmbeddedLog
from infra.eventlog.port import Entry


def main(path: str, topic: str, name: str, batch: str, calls: str) -> None:
    log = EmbeddedLog(Path(path))
    size = int(batch)
    for call in itertools.count() if calls == "0" else range(int(calls)):
        log.append(topic, [Entry(name, f"{name}-{n}".encode()) for n in range(call * size, (call + 1) * size)])
        print((call + 1) * size, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
