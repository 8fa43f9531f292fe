"""Programs that run at a pseudo-terminal, and the exact bytes of their output."""

import os
import pty
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.programs import start
from tests.support.waiting import PATIENCE

__all__ = ["at_terminal"]


def at_terminal(
    command: Sequence[str | Path], home: Path, typed: tuple[bytes, bytes] | None = None, **environment: str
) -> tuple[int, bytes]:
    """Run a command whose standard streams are a terminal; return its exit status and its output.

    :param typed: text to wait for in the output, and the keys that a user then types; the terminal is then the
        command's controlling one, so that it gets the signals of control characters
    """
    ours, theirs = pty.openpty()
    if typed:
        command = ["setsid", "--ctty", *command]
    plain: Mapping[str, str] = {k: v for k, v in os.environ.items() if not k.startswith(("COGET_", "XDG_"))}
    with start(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=home,
        env={**plain, "HOME": str(home), "TERM": "xterm", "COLUMNS": "100", "LINES": "40", **environment},
    ) as process:
        os.close(theirs)
        bound = threading.Timer(PATIENCE, process.kill)
        bound.start()
        output = b""
        try:
            while chunk := os.read(ours, 65536):
                output += chunk
                if typed and typed[0] in output:
                    for key in typed[1]:
                        os.write(ours, bytes([key]))
                    typed = None
        except OSError:  # EIO: the other side is closed
            pass
        finally:
            bound.cancel()
            os.close(ours)
    return process.returncode, output
