"""`python -m harness demo`: the crowd asks, the service learns, one checkpoint is sabotaged, and a table says what came of it.

Enters: arguments and `SLIPSTREAM_*`; the deployment must be running (`slipstream demo` starts it). Leaves: `report.json` in the
home and the table on the terminal. Interrupted at any moment, the same command goes on: what was done lies in the clients' ledger,
what the service did in the service.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from contracts.errors import SlipstreamError
from harness.demo.driver import Choices, Driver
from infra.policies import load_policies
from infra.settings import load_settings


def demo(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness demo", description="The crowd of the demo.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cycles", type=int)
    parser.add_argument("--quick", action="store_true", help="two cycles and small tables")
    parser.add_argument("--no-page", action="store_true", help="do not name the page")
    asked = parser.parse_args(arguments)
    try:
        settings = load_settings()
        (policy,) = load_policies(settings).values()
        choices = Choices.of(asked.seed, asked.cycles, asked.quick, not asked.no_page)
        asyncio.run(Driver(settings, policy, choices).run())
    except KeyboardInterrupt:
        return 130
    except SlipstreamError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0
