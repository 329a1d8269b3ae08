"""Ports for servers that tests kill and start again on the same port.

They lie below the range from which the system picks ports for outgoing connections: there, a client that knocks while nobody
listens can meet itself, and the server finds its port taken when it comes back.
"""

from __future__ import annotations

import random
import socket

LOWEST, HIGHEST = 15_000, 32_000


def free_port(in_a_row: int = 1) -> int:
    """The first of so many free ports, on loopback."""
    while True:
        base = random.SystemRandom().randrange(LOWEST, HIGHEST)
        try:
            for port in range(base, base + in_a_row):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
