"""The collector against the least that could be done: an empty FastAPI endpoint, and a bare kafka-python producer.

Clients keep their connections open and write requests that were made before, so that they cost less than what they measure; the
servers are processes of their own under uvicorn, as in production. Both sides of a pair run in turns, many short rounds of each,
and the best round counts: whatever else a machine does can only make a round slower.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import uvloop

from tests.bench.row import Row
from tests.collector import BATCH, ONE, cloud_event

STAGES = frozenset({"ingest"})
CONNECTIONS = 64
ROUNDS, ROUND_S = 10, 1.0
EVENTS, AT_ONCE, SENDERS = 20_000, 100, 4
ROOT = Path(__file__).resolve().parents[2]

EMPTY = """
import signal, sys, threading
from fastapi import FastAPI
from infra.http import bind, serve
app = FastAPI()

@app.post("/v1/events")
async def empty() -> dict[str, str]:
    return {}

stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
serve(app, bind("127.0.0.1", int(sys.argv[1]), "the empty endpoint"), stop)
"""


def measure(seeds: int) -> list[Row]:
    return [*_single(), *_batches()]


def _single() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as folder:
        ours_port, empty_port = _free_port(), _free_port()
        with (
            _server(["-m", "ingest", "collect"], ours_port, Path(folder)),
            _server(["-c", EMPTY, str(empty_port)], empty_port, None),
        ):
            rates: dict[int, list[float]] = {ours_port: [], empty_port: []}
            for port in [*rates] * (1 + ROUNDS):
                rates[port].append(uvloop.run(_post(port, CONNECTIONS, ROUND_S)))
            ours, empty = (max(rates[port][1:]) for port in (ours_port, empty_port))
    return [Row.beside("ingest.post_vs_empty", ours, empty, "requests/s", 0.7, "higher")]


def _batches() -> list[Row]:
    """On a real Kafka; without one there is no row."""
    with _kafka() as bootstrap, tempfile.TemporaryDirectory(prefix="slipstream-bench-") as folder:
        if bootstrap is None:
            return []
        port = _free_port()
        with _server(["-m", "ingest", "collect"], port, Path(folder), SLIPSTREAM_LOG_URL=f"kafka://{bootstrap}"):
            bodies = [_batch() for _ in range(EVENTS // AT_ONCE)]
            uvloop.run(_post_all(port, bodies[:10]))
            ours, bare = [], []
            for _ in range(5):
                bare.append(_produce(bootstrap))
                start = time.perf_counter()
                uvloop.run(_post_all(port, bodies))
                ours.append(EVENTS / (time.perf_counter() - start))
    return [Row.beside("ingest.batch_vs_producer", max(ours), max(bare), "events/s", 0.5, "higher")]


def _event() -> dict[str, Any]:
    episode = f"ep-{uuid.uuid4().hex}"
    return cloud_event(event_id=str(uuid.uuid4()), source="/vscode/1.4", turnid=f"{episode}.1-1")


def _batch() -> bytes:
    return json.dumps([_event() for _ in range(AT_ONCE)]).encode()


def _produce(bootstrap: str) -> float:
    """What somebody without a collector would write: the same events, one record each, safe when it ends."""
    from kafka import KafkaProducer

    values = [(event["turnid"].encode(), json.dumps(event).encode()) for event in (_event() for _ in range(EVENTS))]
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, compression_type="gzip")
    producer.send("bench-bare", values[0][1], values[0][0]).get(30)
    start = time.perf_counter()
    for key, value in values:
        producer.send("bench-bare", value, key)
    producer.flush()
    spent = time.perf_counter() - start
    producer.close()
    return EVENTS / spent


class _Client(asyncio.Protocol):
    """Writes a request, counts its answer, writes the next one."""

    def __init__(self, requests: Iterator[bytes], over: asyncio.Future[None]) -> None:
        self._requests = requests
        self._over = over
        self._answer = b""
        self.answers = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
        if len(body) < length:
            return
        if not head.startswith(b"HTTP/1.1 20"):
            self._over.set_exception(RuntimeError(self._answer.decode()))
            return
        self._answer = b""
        self.answers += 1
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
        elif not self._over.done():
            self._over.set_result(None)


async def _post(port: int, connections: int, seconds: float) -> float:
    """Answers a second to single events, each with an id of its own."""
    until = time.perf_counter() + seconds

    def requests() -> Iterator[bytes]:
        head, tail = _event_around_its_id()
        for number in range(10**9):
            if time.perf_counter() > until:
                return
            yield head + b"%032d" % number + tail

    start = time.perf_counter()
    answers = await _run(port, [requests() for _ in range(connections)])
    return answers / (time.perf_counter() - start)


async def _post_all(port: int, bodies: list[bytes]) -> None:
    waiting = iter([_request(body, BATCH) for body in bodies])
    answers = await _run(port, [waiting] * SENDERS)
    assert answers == len(bodies), f"{answers} answers to {len(bodies)} batches"


async def _run(port: int, senders: list[Iterator[bytes]]) -> int:
    loop = asyncio.get_running_loop()
    ends = [loop.create_future() for _ in senders]
    opened = [
        await loop.create_connection(lambda requests=requests, over=over: _Client(requests, over), "127.0.0.1", port)
        for requests, over in zip(senders, ends, strict=True)
    ]
    await asyncio.gather(*ends)
    for transport, _ in opened:
        transport.close()
    return sum(client.answers for _, client in opened)


def _event_around_its_id() -> tuple[bytes, bytes]:
    marker = "0" * 32
    head, _, tail = _request(json.dumps({**_event(), "id": marker}).encode(), ONE).partition(marker.encode())
    return head, tail


def _request(body: bytes, kind: str) -> bytes:
    return b"POST /v1/events HTTP/1.1\r\nhost: bench\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (
        kind.encode(),
        len(body),
        body,
    )


@contextlib.contextmanager
def _server(arguments: list[str], port: int, home: Path | None, **variables: str) -> Iterator[None]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SLIPSTREAM_PORT_BASE": str(port - 1), **variables}
    if home is not None:
        environment["SLIPSTREAM_HOME"] = str(home)
    process = subprocess.Popen([sys.executable, *arguments], env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx.HTTPError):
                httpx.get(f"http://127.0.0.1:{port}/health")
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{arguments} did not start")
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@contextlib.contextmanager
def _kafka() -> Iterator[str | None]:
    """The broker that `SLIPSTREAM_KAFKA` names, or one of our own, found as `tests/integration` finds it."""
    running = os.environ.get("SLIPSTREAM_KAFKA")
    command = Path(os.environ.get("KAFKA_HOME") or ROOT.parent / "shared" / "kafka") / "run"
    if running or not command.is_file():
        yield running
        return
    with tempfile.TemporaryDirectory(prefix="slipstream-kafka-") as folder:
        process = subprocess.Popen([command, folder, "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        try:
            ready = next((line for line in process.stdout if line.startswith("ready ")), None)
            if ready is None:
                raise RuntimeError("Kafka did not start")
            yield ready.split()[1]
        finally:
            process.terminate()
            process.wait(30)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
