"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Home = Annotated[Path | None, typer.Option(help="Folder that holds all state. [default: .slipstream]", show_default=False)]
PortBase = Annotated[
    int | None, typer.Option(help="Gateway's port; the next three follow it. [default: 8600]", show_default=False, metavar="N")
]
