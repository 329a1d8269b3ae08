"""Bring the sabotaged checkpoint in the way an operator brings in weights from elsewhere: by the learner's import command."""

from __future__ import annotations

import asyncio
import sys

from contracts.errors import SlipstreamError
from harness.demo.sabotage import sabotage
from infra.settings import Settings


class NotImported(SlipstreamError):
    """The import command refused the folder."""


async def inject(settings: Settings, policy: str, champion: str) -> str:
    """The version under which the bad weights are sealed now."""
    sealed = settings.artifact_root / policy / champion
    folder = await asyncio.to_thread(sabotage, sealed, settings.home / "sabotage")
    command = (sys.executable, "-m", "learner", "import", policy, str(folder))
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, err = await child.communicate()
    lines = out.decode().strip().splitlines()
    if child.returncode != 0 or not lines:
        raise NotImported(f"the sabotaged checkpoint could not be brought in: {err.decode().strip()[-300:]}")
    return lines[-1]
