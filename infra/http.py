"""Serve a FastAPI application until told to stop; a port that is taken gets one clear sentence.

Enters: an application and an address. Leaves: answered requests; requests in flight are finished before the process ends.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading

import uvicorn
from fastapi import FastAPI

from contracts.errors import StartError


def bind(host: str, port: int, what: str) -> socket.socket:
    """A listening socket, or `StartError` that names the port and the setting that moves it."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"port {port} on {host}, which {what} needs, is taken by another program; "
                f"stop it or move Slipstream with --port-base (SLIPSTREAM_PORT_BASE)"
            ) from error
        raise StartError(f"cannot listen on {host}:{port} for {what}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def serve(app: FastAPI, listener: socket.socket, stop: threading.Event, grace_s: float = 10.0) -> None:
    """Answer requests on `listener` until `stop` is set."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=int(grace_s), timeout_keep_alive=75
    )
    server = _Server(config)

    async def run() -> None:
        async def watch() -> None:
            while not stop.is_set():
                await asyncio.sleep(0.05)
            server.should_exit = True

        watcher = asyncio.create_task(watch())
        await server.serve(sockets=[listener])
        watcher.cancel()

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())
    if not server.started:
        raise StartError("the web application failed to start; its log says why")


class _Server(uvicorn.Server):
    """Signals belong to `infra.process`, which sets the stop flag."""

    def install_signal_handlers(self) -> None:  # older uvicorn
        pass

    def capture_signals(self):  # type: ignore[no-untyped-def]
        from contextlib import nullcontext

        return nullcontext()
