"""Shows the demo while it runs: a live panel on a terminal, elsewhere a line now and then.

Enters: a function that tells how things stand. Leaves: what people see. Nothing here changes the demo.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable

from rich.console import Console
from rich.live import Live

from harness.demo.overview import Overview
from harness.demo.view import Traffic, render

Stand = Callable[[], tuple[Traffic, Overview | None]]
_PAINT_S = 0.25
_LINE_S = 5.0


@contextlib.asynccontextmanager
async def shown(console: Console, page: str | None, stand: Stand) -> AsyncIterator[None]:
    if sys.stdout.isatty():
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            async with _meanwhile(_PAINT_S, lambda: live.update(render(*stand(), page))):
                yield
    else:
        async with _meanwhile(_LINE_S, lambda: _line(console, *stand())):
            yield


@contextlib.asynccontextmanager
async def _meanwhile(every_s: float, do: Callable[[], None]) -> AsyncIterator[None]:
    async def again() -> None:
        while True:
            do()
            await asyncio.sleep(every_s)

    task = asyncio.create_task(again())
    try:
        yield
    finally:
        task.cancel()


def _line(console: Console, traffic: Traffic, seen: Overview | None) -> None:
    now = seen.now if seen else "the console does not answer yet"
    console.print(
        f"[{traffic.seconds:4.0f} s] {traffic.doing}: {traffic.requests} requests "
        f"({traffic.per_second:.0f}/s, {traffic.failed} failed). {now}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
