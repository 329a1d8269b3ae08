"""Settings as the command line and the environment choose them; the command line wins.

Enters: options, None where one was not given. Leaves: settings. Goes wrong: `StartError` that names what makes no sense.
"""

from __future__ import annotations

import os
from pathlib import Path

from infra.settings import Settings, load_settings


def chosen_settings(
    home: Path | None, port_base: int | None = None, policies: Path | None = None, only: str | None = None
) -> Settings:
    """The choice is put into the environment, from which every process reads the same."""
    chosen = {"HOME": home, "PORT_BASE": port_base, "POLICIES": policies, "ONLY": only}
    for name, value in chosen.items():
        if value is not None:
            os.environ[f"SLIPSTREAM_{name}"] = str(value)
    return load_settings()
