"""Pegasus's transfers: `pegasus-transfer-coget`, which takes the same input as pegasus-transfer.

It downloads each file from all of its replicas at once. All that coget does not do goes to pegasus-transfer.
"""

import argparse
import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from configparser import ConfigParser
from configparser import Error as MalformedFile
from contextlib import suppress
from pathlib import Path
from random import Random

from coalloc import api
from coalloc.errors import CoallocError, SinkError, TargetInUse, VerificationError
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.model.reports import TransferReport
from coalloc.partial_file import clear_left
from coalloc.plugins.pegasus_documents import Attempt, PegasusTransfer, divided, record, site_lines, total_line
from coalloc.safe_text import redact
from coalloc.schedule.pauses import pause_seconds
from coalloc.util.partial_names import data_folder

__all__ = ["main"]

REAL = "pegasus-transfer"
INTEGRITY = "pegasus-integrity"
INSIDE = "PEGASUS_TRANSFER_COGET"
"""Variable that is set for pegasus-transfer: it may be this program by another name."""
FILES = 8
"""Files at once, as pegasus-transfer has threads."""
WAIT_SECONDS = 0.5
"""Pause between looks at a file that another job fetches."""
log = logging.getLogger("pegasus-transfer-coget")


def main() -> None:
    """Do the transfers; end with status 0 only if all succeeded."""
    given = _arguments().parse_args()
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)7s:  %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.DEBUG if given.debug else logging.INFO)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(_run(given))
    except KeyboardInterrupt:
        log.warning("Exiting due to a signal")
        sys.exit(1)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pegasus-transfer-coget",
        description="Do the transfers of a Pegasus job, each from all of its replicas at once. It takes the input and "
        "the options of pegasus-transfer, which does what coget does not.",
    )
    parser.add_argument("-f", "--file", help="file with the transfers [default: standard input]")
    parser.add_argument("-m", "--max-attempts", type=int, default=3, help="attempts per transfer [default: 3]")
    parser.add_argument(
        "-n",
        "--threads",
        type=int,
        default=0,
        help=f"files at once [default: PEGASUS_TRANSFER_THREADS, or {FILES}]",
    )
    parser.add_argument("-s", "--symlink", action="store_true", help="let pegasus-transfer link local files")
    parser.add_argument("-d", "--debug", action="store_true", help="show debugging output")
    return parser


def _run(given: argparse.Namespace) -> int:
    if INSIDE in os.environ:
        log.critical("%s in PATH is pegasus-transfer-coget: install the one of Pegasus", REAL)
        return 1
    try:
        text = Path(given.file).read_text(encoding="utf-8") if given.file else sys.stdin.read()
        threads = given.threads or int(os.environ.get("PEGASUS_TRANSFER_THREADS", FILES))
        ours, others = divided(text, os.environ, _hosts_with_credentials())
    except (OSError, ValueError) as error:
        log.critical("%s: %s", given.file or "standard input", error)
        return 1
    whole = True
    if others is None or others or not ours:
        whole = _hand_over(text if others is None or not ours else json.dumps(others), given)
    if ours:
        work = PegasusWork(max(1, given.max_attempts))
        whole = asyncio.run(work.do(ours, max(1, threads))) and whole
        work.summarize()
        if whole:
            log.info("All transfers completed successfully.")
        else:
            log.critical("Some transfers failed! See above, and possibly stderr.")
    return 0 if whole else 1


def _hosts_with_credentials() -> list[str]:
    """Return the sections of PEGASUS_CREDENTIALS; none if pegasus-transfer cannot read it either."""
    credentials = ConfigParser()
    try:
        credentials.read(os.environ.get("PEGASUS_CREDENTIALS", []))
    except (MalformedFile, UnicodeDecodeError) as error:
        raise ValueError(f"PEGASUS_CREDENTIALS is malformed: {type(error).__name__}") from None
    return credentials.sections()


def _hand_over(text: str, given: argparse.Namespace) -> bool:
    """Let pegasus-transfer do a document; return whether all of it succeeded."""
    program = shutil.which(REAL)
    if program is None:
        log.critical("%s is not in PATH, which is needed for transfers that coget does not do", REAL)
        return False
    words = [program, "-m", str(given.max_attempts), "-n", str(given.threads)]
    words += ["-s"] * given.symlink + ["-d"] * given.debug
    log.debug("handing over to %s", program)
    return subprocess.run(words, input=text, encoding="utf-8", env={**os.environ, INSIDE: "1"}).returncode == 0


def _make_room(target: Path) -> None:
    if target.is_dir():
        raise SinkError(f"{target} is a directory", "name a file in dest_urls")
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)


def _inode(target: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = target.lstat()
        return found.st_dev, found.st_ino
    return None


def _refused(target: Path, checked: tuple[int, int] | None) -> VerificationError:
    """Remove a file that Pegasus did not accept, unless another job has replaced it; return the error."""
    with suppress(OSError):
        if _inode(target) == checked:
            target.unlink()
    return VerificationError(f"Pegasus does not confirm the checksum of {target}", "check the replicas")


class PegasusWork:
    """The transfers of one document that coget does.

    :param tries: attempts per transfer, if the failure may pass
    """

    def __init__(self, tries: int) -> None:
        self._tries = tries
        self._began = time.time()
        self._made = 0
        self._attempts: list[Attempt] = []
        self._checking = asyncio.Lock()
        self._summed: set[str] = set()

    async def do(self, transfers: Sequence[PegasusTransfer], most: int) -> bool:
        """Do all transfers, `most` at once; return whether all succeeded."""
        places = asyncio.Semaphore(most)

        async def one(transfer: PegasusTransfer) -> bool:
            async with places:
                return await self._transfer(transfer)

        return all(await asyncio.gather(*map(one, transfers)))

    async def _transfer(self, transfer: PegasusTransfer) -> bool:
        name = transfer.lfn or transfer.target
        for attempt in range(1, self._tries + 1):
            try:
                report = await self._attempt(transfer)
                await self._check(transfer)
                log.info("%s: %d bytes%s", name, report.size, ", verified" if report.verified else "")
                return True
            except CoallocError as error:
                log.error("%s: %s: %s", name, error.summary, error.remedy)
                if not error.transient:
                    with suppress(CoallocError, OSError):  # another job may fetch it by now
                        clear_left(Path(transfer.target), None, data_folder(Path(transfer.target).name))
                    return False
            if attempt < self._tries:
                await asyncio.sleep(pause_seconds(attempt, None, Random()))
        return False

    async def _attempt(self, transfer: PegasusTransfer) -> TransferReport:
        """Download a file once; wait while another job fetches it.

        :raises CoallocError: if that failed
        """
        target, results = Path(transfer.target), api.Results[TransferReport]()
        replicas = tuple(Replica(each.url, each.priority) for each in transfer.replicas)
        request = api.Request(
            (),
            output=target,
            overwrite=True,
            file=ReplicaSet(target.name, replicas),
            proxy=Path(transfer.proxy) if transfer.proxy else None,
        )
        began, done = time.time(), False
        try:
            while True:
                _make_room(target)
                try:
                    (report,) = await api.download(request, results=results)
                    done = True
                    return report
                except TargetInUse as error:
                    log.debug("%s: waiting", error.summary)
                    await asyncio.sleep(WAIT_SECONDS)
        except OSError as error:
            raise SinkError(f"cannot write to {target.parent}: {error.strerror}", "choose another directory") from None
        finally:
            self._note(transfer, results, began, done)

    def _note(
        self, transfer: PegasusTransfer, results: "api.Results[TransferReport]", began: float, done: bool
    ) -> None:
        """Record an attempt: a part for each replica that sent bytes, or one for the first replica."""
        sent = {each.url: each.bytes for report in results.known for each in report.sources if each.bytes}
        replicas = [each for each in transfer.replicas if redact(each.url) in sent or each.url in sent]
        self._made += 1
        self._attempts += [
            Attempt(each, transfer, done, began, time.time() - began, sent.get(each.url, sent.get(redact(each.url), 0)))
            for each in replicas or transfer.replicas[:1]
        ]

    async def _check(self, transfer: PegasusTransfer) -> None:
        """Let pegasus-integrity compute or compare the checksum, as pegasus-transfer does; one file at a time.

        :raises VerificationError: if it is wrong, or cannot be compared; then the file is removed
        """
        async with self._checking:
            if transfer.generates and transfer.lfn not in self._summed:
                self._summed.add(transfer.lfn)
                if not await self._integrity("--generate-fullstat-yaml", transfer):
                    log.error("%s: no checksum for Pegasus", transfer.lfn)
            target = Path(transfer.target)
            checked = _inode(target)
            if transfer.verifies and not await self._integrity("--verify", transfer):
                raise _refused(target, checked)

    async def _integrity(self, option: str, transfer: PegasusTransfer) -> bool:
        real = shutil.which(REAL)
        beside = str(Path(real).parent) if real else ""
        program = shutil.which(INTEGRITY) or shutil.which(INTEGRITY, path=beside)
        if program is None or not transfer.lfn:
            log.error("Unable to do integrity checking: %s", "no lfn" if program else f"{INTEGRITY} not found")
            return False
        process = await asyncio.create_subprocess_exec(program, f"{option}={transfer.lfn}={transfer.target}")
        return await process.wait() == 0

    def summarize(self) -> None:
        """Write the statistics to the log and, if Pegasus collects them, to a file."""
        seconds = time.time() - self._began
        if folder := os.environ.get("PEGASUS_MULTIPART_DIR"):
            own = Path(folder, f"{time.time():.0f}-transfer-coget-{os.getpid()}")
            try:
                own.write_text(record(self._attempts), encoding="utf-8")
            except OSError as error:
                log.error("Unable to write stats to $PEGASUS_MULTIPART_DIR: %s", error)
        for line in (total_line(self._made, self._attempts, seconds), *site_lines(self._attempts, seconds)):
            log.info(line)
