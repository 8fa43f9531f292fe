"""`make demo`: a download of one file from the fastest of three GridFTP servers, and then from all three.

The outer process creates the temporary directory and enforces the time limit. The inner process (`--inside DIRECTORY`)
runs the servers and coget, in a private network if the machine allows one (`scripts.links`), otherwise on loopback.
Servers and network end with the inner process; the outer process deletes the directory.
"""

import contextlib
import fcntl
import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from coalloc.util import human
from scripts import links
from tests.support.gridftp import GridFTPServer

MIB = 1 << 20
SIZE = 512 * MIB
PREFIX = "coget-demo-"
LIMIT_SECONDS = 240
COGET = str(Path(sys.executable).with_name("coget"))


# The outer process


def main() -> int:
    """Create the temporary directory, run the inner process in it, and clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    why_not = links.refusal()
    with _scratch() as folder:
        inner = [sys.executable, "-m", "scripts.demo", "--inside", str(folder)]
        if why_not is None:
            inner = links.enter([*inner, str(os.getuid()), str(os.getgid())])
        else:
            print(f"The servers run on loopback, because this machine allows no private network ({why_not}).")
            print("They share the same processors and memory, so expect no gain.\n")
        return _guarded(inner)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _guarded(command: Sequence[str]) -> int:
    """Run a command and return its exit status; kill it at the time limit, or when this process ends."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"demo: stopped, because it took more than {LIMIT_SECONDS} s", file=sys.stderr)
            return 1
        finally:
            process.kill()
            if sys.stderr.isatty():
                sys.stderr.write("\x1b[?25h")  # a killed display may have left the cursor hidden


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Yield a temporary directory, locked until the demo ends; delete the directories of killed demos first."""
    parent = Path(tempfile.gettempdir())
    for stale in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), _locked(stale):
            shutil.rmtree(stale)
    needed = 2 * SIZE + 64 * MIB
    if shutil.disk_usage(parent).free < needed:
        sys.exit(f"demo: {parent} has less than {human.size(needed)} free; set TMPDIR to a directory that has more")
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, _locked(Path(name)):
        yield Path(name)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a directory. :raises OSError: when another process has locked it, or this user may not open it"""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


# The inner process


def show(folder: Path, user: tuple[int, int] | None) -> int:
    """Run the demo in a directory.

    :param user: uid and gid of the user; None outside the private network
    """
    if user:
        links.build()
        rates = ", ".join(str(link.mbit) for link in links.LINKS)
        print(f"A private network with three servers, behind links of {rates} Mbit/s.")
    print(f"Making a file of {SIZE // MIB} MiB and starting three GridFTP servers ...", flush=True)
    original = folder / "original" / "data.bin"
    original.parent.mkdir()
    with original.open("wb") as file:
        for _ in range(SIZE // MIB):
            file.write(os.urandom(MIB))
    with contextlib.ExitStack() as stack:
        urls = [_serve(stack, link, original, user) for link in links.LINKS]
        what = f"the best single server ({links.LINKS[0].mbit} Mbit/s)" if user else "a single server"
        single = _fetch(f"1. From {what}", urls[:1], folder / "single.bin", original)
        three = _fetch("2. From all three at once", urls, folder / "three.bin", original)
    _summary(single, three, urls, shaped=user is not None)
    return 0


def _serve(stack: contextlib.ExitStack, link: links.Link, file: Path, user: tuple[int, int] | None) -> str:
    """Start a server and return the file's URL there."""
    if user:
        prefix = links.server_prefix(link, *user)
        server = GridFTPServer(file.parent, link.server, env={"GLOBUS_HOSTNAME": link.server}, prefix=prefix)
    else:
        server = GridFTPServer(file.parent, f"127.0.0.{1 + link.number}")
    stack.enter_context(server)
    return f"ftp://{link.name if user else server.host}:{server.port}/~/{file.name}"


def _fetch(title: str, urls: Sequence[str], target: Path, original: Path) -> dict[str, Any]:
    """Run coget with its progress on the terminal, compare the copy with the original, and return coget's report."""
    words = ["coget", *urls, "-o", target.name]
    print(f"\n{title}\n   $ {' '.join(words)}", flush=True)
    done = subprocess.run(
        [COGET, *words[1:], "--json"],
        cwd=target.parent,
        env={**os.environ, "COGET_HISTORY": "off"},
        stdout=subprocess.PIPE,
    )
    if done.returncode:
        sys.exit(f"demo: coget ended with status {done.returncode}")
    if not filecmp.cmp(original, target, shallow=False):
        sys.exit("demo: the copy differs from the original. This is a bug in coget: please report it.")
    target.unlink()
    report: dict[str, Any] = json.loads(done.stdout)
    checksum = report["checksum"]
    verified = f"{checksum['algorithm']} {checksum['value']}, {'' if checksum['verified'] else 'not '}verified by coget"
    print(
        f"   {report['seconds']:.1f} s, {human.rate(report['rate'])}; {verified}; equal to the original byte for byte"
    )
    return report


def _summary(single: dict[str, Any], three: dict[str, Any], urls: Sequence[str], shaped: bool) -> None:
    parts = {source["url"]: source for source in three["sources"]}
    print("\nThe sources' shares, and the gain\n")
    for link, url in zip(links.LINKS, urls, strict=True):
        source = parts[url]
        where = f"{link.name:6} ({link.mbit} Mbit/s)" if shaped else f"server {link.number}"
        print(f"   {where:20} gave {human.percent(source['bytes'], three['size']):>4}, at {human.rate(source['rate'])}")
    gain = single["seconds"] / three["seconds"]
    print(f"\n   one server     {single['seconds']:5.1f} s   {human.rate(single['rate'])}")
    print(f"   all three      {three['seconds']:5.1f} s   {human.rate(three['rate'])}")
    best = sum(link.mbit for link in links.LINKS) / links.LINKS[0].mbit
    print(f"   gain           {gain:5.2f} x" + (f"   (these links allow {best:.2f})" if shaped else ""))
    print("\nNext: put .venv/bin on your PATH, try `coget --help`, and read docs/tutorials/first-download.md.")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--inside", folder]:
            sys.exit(show(Path(folder), None))
        case ["--inside", folder, uid, gid]:
            sys.exit(show(Path(folder), (int(uid), int(gid))))
        case _:
            sys.exit(main())
