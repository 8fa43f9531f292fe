"""The program of a subprocess: reads jobs from standard input, runs them one after the other, and writes their results.

A frame is a length of eight bytes and a pickle. Both processes run the same program, and no user's data are read as a
pickle. The subprocess has a low priority and a memory limit.
"""

import ctypes
import errno
import math
import os
import pickle
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import IO, Any

__all__ = ["HEAD", "OUT_OF_MEMORY", "framed", "frames", "main"]

HEAD = struct.Struct(">Q")
OUT_OF_MEMORY = 70
"""Exit status of a process that ran out of memory."""
NICE = 10


def framed(value: object) -> bytes:
    """Return a value as a frame for the pipe."""
    body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return HEAD.pack(len(body)) + body


def _done(work: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
    """Run a job; return whether it succeeded, and its result or error."""
    try:
        return True, work(*args)
    except Exception as error:
        if any(map(_lack_of_memory, _with_causes(error))):
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(OUT_OF_MEMORY)  # without memory, other code may fail, and modules may be half imported
        return False, error


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and the errors while which it was raised."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _lack_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory could not be allocated.

    Modules in C report that in several ways. A shared library that cannot be mapped is an `ImportError`, a missing
    module a `ModuleNotFoundError`.
    """
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError | SystemError | ImportError) and not isinstance(error, ModuleNotFoundError)


def _frame(answer: tuple[bool, Any], began: float, trim: Callable[[int], object]) -> bytes:
    seconds = time.process_time() - began
    try:
        frame = framed((*answer, _resident(), seconds))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except Exception as error:
        frame = framed((False, RuntimeError(repr(error)), 0, seconds))
    del answer
    trim(0)
    return frame


def _resident() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def frames(source: IO[bytes]) -> Iterator[Any]:
    """Yield the values of frames until the end of the input."""
    while len(head := source.read(HEAD.size)) == HEAD.size:
        yield pickle.loads(source.read(HEAD.unpack(head)[0]))


def main(memory: int, seconds: int) -> None:
    """Run jobs until standard input ends.

    :param memory: limit in bytes
    :param seconds: limit of processor time for a job
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes, but the broker ends this one
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    os.nice(NICE)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keeps the output of libraries out of the results
    for job in frames(source):
        began = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(began) + seconds, resource.RLIM_INFINITY))
        target.write(_frame(_done(*job), began, trim))
        target.flush()
