"""A process that has loaded the modules of a command, and forks a child for each start of the command; see `programs`.

It only loads modules, so a child inherits no threads, event loops or connections. A child runs the same `main` as the
installed script, and ends like an interpreter, except that it leaves its memory to the kernel.
"""

import array
import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

__all__: list[str] = []

LOADED = {
    "coget": (
        "coalloc.cli",
        "coalloc.cli.collect",
        "coalloc.cli.completion",
        "coalloc.cli.datasets",
        "coalloc.cli.doctor",
        "coalloc.cli.forecast",
        "coalloc.cli.get",
        "coalloc.cli.history",
        "coalloc.cli.plan",
        "coalloc.cli.probe",
        "coalloc.cli.submit",
        "coalloc.cli.tasks",
        "coalloc.cli.watch",
        "coalloc.api.catalogue",
        "coalloc.api.downloads",
        "coalloc.broker_client.submission",
        "coalloc.cli.event_loop",
        "coalloc.cli.interrupts",
        "coalloc.broker_client.decision",
        "coalloc.engine.http",
        "coalloc.broker_client.outbox",
        "coalloc.history.links",
        "coalloc.display.table",
        "coalloc.display.terminal",
        "coalloc.display.json",
        "coalloc.display.task_bars",
        "coalloc.display.task_text",
        "coalloc.display.text",
        "coalloc.resolve.xml_tree",
        "coalloc.resolve.metalink",
        "predictors.selection",
        "anyio._backends._asyncio",
        "certifi",
        "concurrent.futures.thread",
        "httpcore._async",
        "httpx",
        "idna",
        "importlib.readers",
        "sqlite3",
    ),
    "coget-broker": (
        "broker.cli",
        "broker.server",
        "broker.storage.migration",
        "alembic.command",
        "encodings.idna",
        "numba",
        "sqlalchemy.engine.strategies",
        "sqlalchemy.ext.compiler",
    ),
    "globus": (
        "globus_cli",
        "globus_cli.commands.endpoint.show",
        "globus_cli.commands.ls",
        "globus_cli.commands.task.wait",
        "idna",
    ),
}
"""Modules that a run of each command loads; the first one defines `main`."""
LARGEST = 1 << 20
PR_SET_PDEATHSIG = 1

Request = dict[str, Any]


def _serve(connection: socket.socket) -> Request:
    """Fork a child for each request. Return the request in each child; in this process, never return."""
    while True:
        message, rights, _, _ = connection.recvmsg(LARGEST, socket.CMSG_SPACE(3 * array.array("i").itemsize))
        if not message:  # the tests' process has ended
            os._exit(0)
        streams = array.array("i", rights[0][2])
        ours, theirs = socket.socketpair()
        between = os.fork()
        if not between:
            if os.fork():
                os._exit(0)
            connection.close()
            ours.close()
            request: Request = json.loads(message)
            _become(request, streams, theirs)
            return request
        theirs.close()
        for number in streams:
            os.close(number)
        os.waitpid(between, 0)  # now the tests' process is the child's parent
        with ours:
            connection.send(ours.recv(32))


def _become(request: Request, streams: "array.array[int]", server: socket.socket) -> None:
    """Turn this child into the process that the request describes: its parent, streams, environment and so on."""
    server.send(str(os.getpid()).encode())
    server.recv(1)  # returns when the tests' process is the parent
    server.close()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != request["parent"]:
        os._exit(1)
    if request["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(request["umask"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["words"]
    for wanted, number in enumerate(streams):
        os.dup2(number, wanted)
        os.close(number)
    sys.stdin = sys.__stdin__ = _stream(sys.__stdin__, "rb")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(sys.__stdout__, "wb")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(sys.__stderr__, "wb")  # type: ignore[misc]


def _stream(before: Any, mode: str) -> io.TextIOWrapper:
    """Return a new standard stream, as the interpreter creates it at its start."""
    binary = open(before.fileno(), mode, closefd=False)  # noqa: SIM115 - it is never closed
    lines = before.fileno() == 2 or binary.isatty()
    return io.TextIOWrapper(binary, before.encoding, before.errors, line_buffering=lines)


def _main() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is meant for the tests
    command, number = sys.argv[1:]
    sys.path[0] = str(Path(sys.executable).parent)  # the directory of the installed scripts
    gc.disable()
    modules = [importlib.import_module(name) for name in LOADED[command]]
    gc.freeze()
    gc.enable()
    request = _serve(socket.socket(fileno=int(number)))
    exec(request["code"], {"__name__": "sitecustomize"})
    try:
        modules[0].main()
    except SystemExit as end:
        if isinstance(end.code, int | None):
            _end(end.code or 0)
        raise
    raise AssertionError(f"{command} returned")


def _end(status: int) -> None:
    """End like an interpreter, but free no objects: to free those of the server, a child would copy their memory.

    Return if the output cannot be written: the interpreter reports that at its end.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except OSError:
        return
    os._exit(status & 0xFF)


if __name__ == "__main__":
    _main()
