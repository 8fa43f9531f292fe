"""The speed of the machine on which a benchmark runs, so that results of two machines can be compared."""

import socket
import subprocess
import sys
import threading
import time
from statistics import median

__all__ = ["speed"]

STARTS = 5
FLOW = 1 << 30
PART = 1 << 20
COPIED = 256 << 20


def speed() -> dict[str, float]:
    """Return the seconds of `import asyncio` in a new process, and the GB/s of one TCP flow and of a copy in memory."""
    return {"import asyncio, s": _start(), "one flow, GB/s": _flow(), "copy in memory, GB/s": _copy()}


def _start() -> float:
    found = []
    for _ in range(STARTS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import asyncio"], check=True)
        found.append(time.perf_counter() - began)
    return round(median(found), 3)


def _flow() -> float:
    """Return the rate at which one thread receives what another one sends over loopback."""

    def send() -> None:
        part = bytes(PART)
        with socket.create_connection(listener.getsockname()) as connection:
            for _ in range(FLOW // PART):
                connection.sendall(part)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        sending = threading.Thread(target=send)
        sending.start()
        connection, _ = listener.accept()
        began, buffer = time.perf_counter(), bytearray(PART)
        with connection:
            while connection.recv_into(buffer):
                pass
        seconds = time.perf_counter() - began
        sending.join()
    return round(FLOW / seconds / 1e9, 2)


def _copy() -> float:
    data = bytearray(COPIED)
    began = time.perf_counter()
    bytes(data)
    return round(COPIED / (time.perf_counter() - began) / 1e9, 2)
