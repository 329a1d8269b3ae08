"""Ask a process whether it is ready.

Enters: how readiness is seen, and for how long the process has lived. Leaves: yes or no. Whatever goes wrong is a no.
"""

from __future__ import annotations

import asyncio

from infra.supervisor.program import AnswersHttp, AnswersPing, Readiness, StaysAlive

TIMEOUT_S = 2.0


async def is_ready(readiness: Readiness, alive_s: float) -> bool:
    match readiness:
        case StaysAlive(seconds):
            return alive_s >= seconds
        case AnswersHttp(port, path, host):
            request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
            return b" 200 " in (await _first_line(host, port, request))
        case AnswersPing(port, password, host):
            return (await _first_line(host, port, f"AUTH {password}\r\n")) == b"+OK\r\n"


async def _first_line(host: str, port: int, request: str) -> bytes:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(request.encode())
                return await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):
        return b""
