"""Is a port free, and if not, who has it.

Enters: an address. Leaves: None when it is free, else half a sentence. A holder that cannot be told is not told.
"""

from __future__ import annotations

import errno
import socket

import psutil


def busy(host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"is taken by {_holder(port)}"
            return f"cannot be listened on: {error.strerror or error}"
    return None


def _holder(port: int) -> str:
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
                process = psutil.Process(connection.pid)
                command = " ".join(process.cmdline()[:4]) or process.name()
                return f"process {connection.pid} ({command[:80]})"
    except (psutil.Error, OSError):
        pass
    return "another program"
