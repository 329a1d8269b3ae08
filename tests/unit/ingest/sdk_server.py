"""A collector for the tests of the SDK: real HTTP, answers as the test says, and remembers what it was sent."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    status: int = 202
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    after_s: float = 0.0


@dataclass
class Request:
    headers: dict[str, str]
    events: list[dict[str, Any]]
    at: float
    answer: Answer


def all_taken(events: list[dict[str, Any]]) -> Answer:
    return Answer(202, {"results": [{"id": event["id"], "status": "taken"} for event in events]})


class Collector:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: Callable[[list[dict[str, Any]]], Answer] = all_taken
        self.url = ""
        self._lock = threading.Lock()

    def take(self, headers: dict[str, str], body: bytes) -> Answer:
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        events = json.loads(body)
        with self._lock:
            answer = self.answers(events)
            self.requests.append(Request(headers, events, time.monotonic(), answer))
        return answer

    @property
    def ids(self) -> list[str]:
        """Of the events that were taken, in the order in which they came, repeats included."""
        return [
            result["id"]
            for request in self.requests
            if isinstance(request.answer.body, dict)
            for result in request.answer.body.get("results", [])
            if result["status"] == "taken"
        ]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for request in self.requests for event in request.events]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    collector: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = self.collector.take({name.lower(): value for name, value in self.headers.items()}, body)
        time.sleep(answer.after_s)
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        try:
            self.send_response(answer.status)
            for name, value in {**answer.headers, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            pass  # the client did not wait

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(collector: Collector, port: int = 0) -> Iterator[Collector]:
    handler = type("Handler", (_Handler,), {"collector": collector})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
