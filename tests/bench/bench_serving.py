"""Swaps under steady load, through the real gateway process: none may fail a request, and few may feel it.

Ours: p99 of requests while the routing flips between two versions twenty times. Baseline: p99 of the same load without a swap.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from contracts.checkpoint import Checkpoint
from contracts.rollout import Rollout
from harness.bench.loop import addresses
from harness.developers.gateway import Client, Unanswered, open_session
from harness.tiny import WEIGHTS
from infra.artifacts import seal
from infra.db.engine import open_db, writing
from infra.db.query import Engine
from infra.db.tables.learner import CheckpointRow
from infra.db.tables.registry import RolloutRow
from infra.policies import shipped_policies
from infra.settings import Settings
from tests.bench.row import Row

STAGES = frozenset({"serving"})
SWAPS, CLIENTS, QUIET_S = 20, 16, 10.0
CONTEXT = "import os\n\n\ndef listing(folder):\n    names = []\n    for name in os.listdir("


def measure(seeds: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as home:
        settings = Settings(home=Path(home), policies=shipped_policies("demo"), only="tab", port_base=28_700)
        engine = open_db(settings.database)
        for number in range(SWAPS + 1):
            _seal(engine, settings.artifact_root, number)
        _route(engine, 1, 0)
        variables = {"HOME": home, "POLICIES": settings.policies, "ONLY": "tab", "PORT_BASE": settings.port_base}
        environment = {**os.environ, **{f"SLIPSTREAM_{name}": str(value) for name, value in variables.items()}}
        process = subprocess.Popen([sys.executable, "-m", "serving"], env=environment, stdout=subprocess.DEVNULL)
        try:
            quiet, swapping, failed = asyncio.run(_load(settings, engine))
        finally:
            process.terminate()
            process.wait(30)
    p99 = [float(np.percentile(latencies, 99)) * 1000 for latencies in (swapping, quiet)]
    return [
        Row.alone("serving.swap_failed", failed, "requests", 0, "lower"),
        Row.beside("serving.swap_p99", p99[0], p99[1], "ms", 2.0, "lower"),
    ]


async def _load(settings: Settings, engine: Engine) -> tuple[list[float], list[float], int]:
    latencies: list[float] = []
    failed, over = 0, asyncio.Event()
    async with open_session() as session:
        client = Client(addresses(settings), session)
        while not await client.healthy(addresses(settings).gateway):
            await asyncio.sleep(0.1)

        async def ask(who: int) -> None:
            nonlocal failed
            while not over.is_set():
                start = time.perf_counter()
                try:
                    await client.complete("tab", CONTEXT, {"X-Subject": f"bench-{who}", "X-Consent": "true"})
                except Unanswered:
                    failed += 1
                latencies.append(time.perf_counter() - start)

        clients = [asyncio.create_task(ask(who)) for who in range(CLIENTS)]
        await asyncio.sleep(2.0)
        latencies.clear()
        await asyncio.sleep(QUIET_S)
        quiet = list(latencies)
        latencies.clear()
        for number in range(1, SWAPS + 1):
            await asyncio.to_thread(_route, engine, number + 1, number)
            while f"tab-v{number:04d}" != (await client.complete("tab", CONTEXT, {"X-Subject": "watch"})).version:
                await asyncio.sleep(0.02)
        swapping = list(latencies)
        over.set()
        await asyncio.gather(*clients)
    return quiet, swapping, failed


def _seal(engine: Engine, artifacts: Path, number: int) -> None:
    version = f"tab-v{number:04d}"

    def write(folder: Path) -> None:
        shutil.copytree(WEIGHTS, folder, dirs_exist_ok=True)
        tensors = load_file(folder / "model.safetensors")
        save_file(
            {name: (rows * (1 + 1e-3 * number)).astype(rows.dtype) for name, rows in tensors.items()}, folder / "model.safetensors"
        )

    folder, files = seal(artifacts / "tab", version, write)
    checkpoint = Checkpoint(
        version=version,
        policy="tab",
        number=number,
        parent=None,
        kind="full",
        uri=str(folder),
        files=files,
        samples=None,
        sample_count=0,
        spec=None,
        cycle_id=None,
        metrics={},
        created_at=datetime.now(UTC),
    )
    body = checkpoint.model_dump_json()
    with writing(engine) as session:
        session.add(
            CheckpointRow(version=version, policy="tab", number=number, parent=None, created_ms=0, published_ms=None, body=body)
        )


def _route(engine: Engine, revision: int, number: int) -> None:
    routing = Rollout(policy="tab", revision=revision, champion=f"tab-v{number:04d}", reason="bench", at=datetime.now(UTC))
    with writing(engine) as session:
        session.merge(RolloutRow(policy="tab", revision=revision, step_since_ms=0, body=routing.model_dump_json()))
