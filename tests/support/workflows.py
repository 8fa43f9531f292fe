"""Real Snakemake runs of a small workflow that reads one file by coget's storage plugin."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import PATIENCE

__all__ = ["begin", "query", "workflow"]

WORKFLOW = """
rule all:
    input: "upper.txt"
rule count:
    input: storage.coget(QUERY)
    output: "count.txt"
    shell: "cat {input} | sha256sum > {output}; echo ran >> ran"
rule upper:
    input: "count.txt"
    output: "upper.txt"
    shell: "tr a-f A-F < {input} > {output}"
"""


def query(web, name: str) -> str:
    """Return the query for a file at several servers."""
    return "coget://" + "|".join(server.url(name) for server in web)


def begin(folder: Path, named: str | list[str], *words: str, **more: str) -> "subprocess.Popen[str]":
    """Start Snakemake in a session of its own, with a home directory that cannot be written."""
    folder.mkdir(exist_ok=True)
    (folder / "Snakefile").write_text(WORKFLOW.replace("QUERY", repr(named)))
    clean = {**os.environ, "HOME": "/proc/none", "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", "-c1", "--nolock", *words],
        cwd=folder,
        env={**clean, **more},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def workflow(folder: Path, named: str | list[str], *words: str, **more: str) -> "tuple[int, str]":
    """Run the workflow to its end; return Snakemake's exit status and output."""
    with begin(folder, named, *words, **more) as process:
        try:
            out, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    return process.returncode, out
