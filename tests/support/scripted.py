"""Servers with scripted answers, and programs under limits of memory and processor time."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

__all__ = ["PREAMBLE", "Script", "ftp_server", "limited", "raw_server", "sent_back"]

Script = bytes | Callable[[asyncio.StreamWriter, str], Awaitable[None]]
"""An answer to a command: bytes, or a function that gets a writer and the command's argument, and writes the answer."""
DEFAULTS: Mapping[str, Script] = {
    "GREETING": b"220 ready\r\n",
    "USER": b"331 password\r\n",
    "PASS": b"230 in\r\n",
    "TYPE": b"200 ok\r\n",
    "FEAT": b"211-Extensions\r\n ERET\r\n PARALLEL\r\n SIZE\r\n211 End\r\n",
    "SIZE": b"213 1000000\r\n",
    "MDTM": b"213 20260101000000\r\n",
    "MODE": b"200 ok\r\n",
}


@contextlib.asynccontextmanager
async def raw_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """Run a server that calls `serve` with each connection; yield its port. Clients may disconnect at any time."""
    tasks, writers = set(), list[asyncio.StreamWriter]()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        writers.append(writer)
        try:
            with contextlib.suppress(ConnectionError, EOFError, asyncio.CancelledError):
                await serve(reader, writer)
        finally:
            writer.close()

    listener = await asyncio.start_server(accepted, host)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # the event loop closes aborted connections in its next iteration


@contextlib.asynccontextmanager
async def ftp_server(**answers: Script) -> AsyncIterator[str]:
    """Run an FTP server with these answers to commands, and `DEFAULTS` for others; yield the URL of a file."""
    said = {**DEFAULTS, **answers}

    async def say(writer: asyncio.StreamWriter, verb: str, argument: str) -> None:
        answer = said.get(verb, b"500 what?\r\n")
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
        else:
            await answer(writer, argument)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await say(writer, "GREETING", "")
        while line := await reader.readline():
            verb, _, argument = line.decode().strip().partition(" ")
            await say(writer, verb, argument)

    async with raw_server(serve) as port:
        yield f"ftp://127.0.0.1:{port}/file"


async def sent_back(argument: str) -> socket.socket:
    """Open a connection to the address in the argument of a PORT command."""
    *host, high, low = argument.split(",")
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (".".join(host), int(high) * 256 + int(low)))
    return sock


PREAMBLE = """
import asyncio, sys
from coalloc.util.dialer import DirectDialer
from coalloc.engine import open_source
from coalloc.engine.base import EngineOptions, Span
from coalloc.errors import CoallocError

def print_error(error):
    print(type(error).__name__, "|", str(error)[:2000], "|", error.remedy)

async def fetched(url):
    source = open_source(url, "auto", EngineOptions(DirectDialer(), connect_seconds=60.0))
    try:
        stat = await source.open()
        await source.fetch(Span(0, stat.size), lambda start, end, data: None)
        print("fetched", stat.size)
    except CoallocError as error:
        print_error(error)
    finally:
        await source.close()
"""


async def limited(program: str, *arguments: str, memory: int = 400 << 20, seconds: int = 60) -> str:
    """Run Python code after `PREAMBLE`, in a process with limits; return its output.

    :param memory: limit of the address space in bytes
    :param seconds: limit of the processor time
    """
    limits = f"import resource\nresource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))\n"
    limits += f"resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))\n"
    code = f"{PREAMBLE}\n{limits}\n{textwrap.dedent(program)}"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    out, err = await child.communicate()
    assert child.returncode == 0, f"ended with {child.returncode}: {err.decode()[-2000:]}"
    return out.decode()
