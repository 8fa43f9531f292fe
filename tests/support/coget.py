"""The `coget` command as users run it: as a process, with a time limit and its own home directory."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.support.programs import COGET, LATE, start
from tests.support.waiting import PATIENCE

__all__ = ["CONTENT", "NAME", "REPORT_KEYS", "SOURCE_KEYS", "coget", "coget_process", "patient", "without"]

LIFE_SECONDS = PATIENCE

# A file to fetch, with a name that needs quoting.
NAME = "run 7.root"
CONTENT = np.random.default_rng(7).bytes(8 << 20)

# The keys of the JSON report, as documented in docs/reference/cli.md.
REPORT_KEYS = {
    "output",
    "size",
    "seconds",
    "rate",
    "strategy",
    "resumed_bytes",
    "duplicate_bytes",
    "checksum",
    "rationale",
    "sources",
}
SOURCE_KEYS = {"url", "bytes", "seconds", "rate", "ranges", "streams", "idle_seconds", "outcome", "error"}
SOURCE_KEYS |= {"planned_bytes", "ready_seconds", "copies", "routes", "unused_checksums", "named_by", "held_seconds"}


def coget_process(
    words: Sequence[str], home: Path, prefix: Sequence[str] = (), **environment: str
) -> "subprocess.Popen[str]":
    """Start `coget` with pipes for stdout and stderr, and with `home` as home and working directory.

    :param prefix: a command that replaces itself (exec) by the command after it
    """
    return start(
        [*prefix, COGET, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env={**_plain_environment(), "HOME": str(home), **environment},
    )


def coget(
    words: Sequence[str], home: Path, prefix: Sequence[str] = (), **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run `coget` to its end; return its status and output."""
    with coget_process(words, home, prefix, **environment) as process:
        try:
            out, err = process.communicate(timeout=LIFE_SECONDS)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def without(module: str, folder: Path) -> dict[str, str]:
    """Return environment variables for a Python in which this module cannot be imported."""
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules[{module!r}] = None\n")
    return {"PYTHONPATH": str(folder)}


def patient(folder: Path) -> dict[str, str]:
    """Return environment variables for a coget that waits a minute for a broker, for depots, and for late servers."""
    lines = (
        "from coalloc.broker_client import guarantee, outbox",
        "from coalloc.depot import dialer",
        "from coalloc.download import connections",
        "guarantee.ASKED = guarantee.PATIENCE = outbox.PATIENCE = dialer.PATIENCE = dialer.HEAD_START = 60.0",
        "connections.ANSWER = 60.0",
    )
    (folder / "sitecustomize.py").write_text(LATE + "\n".join([*lines, ""]))
    return {"PYTHONPATH": str(folder)}


def _plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("COGET_", "XDG_"))}
