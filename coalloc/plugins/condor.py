"""HTCondor's file transfer plugin: `condor_coget_plugin`.

HTCondor calls it with `-classad` before each job, to learn what it can do; so that answer imports nothing of coget. It
calls it once more with all files of one scheme: `-infile` names their ads, and one ad for each goes to `-outfile`.

It runs as the job's user, but in the environment of a daemon. So it reads and writes nothing below HOME.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from coalloc.errors import CoallocError
    from coalloc.model.reports import TransferReport
    from coalloc.plugins.classads import Value

__all__ = ["main"]

VERSION = "0.1.0"
"""The version of coget; to ask for it would take most of the time of `-classad`."""
METHODS = "coget,replica,gsiftp"
"""Schemes for which HTCondor calls the plugin. It reads all others that coget reads, if a submit file asks for it."""
MOST_AT_ONCE = 100
"""Most files at once; the connections to each server have a limit of their own."""
TRIES = 3
"""Attempts per file: HTCondor itself does not retry, but holds the job. An attempt retries each server by itself."""
USAGE = "usage: condor_coget_plugin -classad | -infile FILE -outfile FILE [-upload]"
NOWHERE = "/nonexistent"


def main() -> None:
    """Run the plugin; end with status 0 only if all files were transferred."""
    sys.exit(_run(sys.argv[1:]))


def _run(words: Sequence[str]) -> int:
    if list(words) == ["-classad"]:
        print(_description())
        return 0
    given = dict(zip(words[::2], words[1::2], strict=False))
    if "-infile" not in given or "-outfile" not in given:
        print(USAGE, file=sys.stderr)
        return 1
    _leave_home()
    # emptied even if -infile cannot be read: HTCondor may use its name again, and would read old results
    with Path(given["-outfile"]).open("w", encoding="utf-8", errors="surrogateescape") as results:
        try:
            text = Path(given["-infile"]).read_text(encoding="utf-8", errors="surrogateescape")
            return _transfer(text, results, upload="-upload" in words)
        except (OSError, ValueError) as error:
            print(f"condor_coget_plugin: {given['-infile']}: {error}", file=sys.stderr)
            return 1


def _description() -> str:
    return "\n".join(
        (
            "MultipleFileSupport = true",
            'PluginType = "FileTransfer"',
            f'PluginVersion = "{VERSION}"',
            "ProtocolVersion = 2",
            f'SupportedMethods = "{METHODS}"',
        )
    )


def _leave_home() -> None:
    """Use nothing of the home directory, which is the daemon's; keep no history."""
    os.environ["HOME"] = NOWHERE
    os.environ.setdefault("XDG_CONFIG_HOME", NOWHERE)
    os.environ.setdefault("COGET_HISTORY", "off")


def _transfer(text: str, results: TextIO, *, upload: bool) -> int:
    """Transfer the files of these ads; write one ad for each as soon as it is known. Return the exit status."""
    import asyncio
    from collections import defaultdict

    from coalloc.plugins.classads import read_ads, write_ad

    wanted = read_ads(text)
    places = asyncio.Semaphore(MOST_AT_ONCE)
    turns: defaultdict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)  # ads of one file follow each other

    async def one(ad: "Mapping[str, Value]") -> bool:
        name = str(ad.get("localfilename") or "")
        async with turns[Path(name)], places:
            transfer = FileTransfer(str(ad.get("url") or ""), name, upload=upload)
            await transfer.run()
            print(write_ad(transfer.ad), file=results, flush=True)
            return transfer.report is not None

    async def all_of_them() -> bool:
        return all(await asyncio.gather(*map(one, wanted)))

    return 0 if asyncio.run(all_of_them()) else 1


class FileTransfer:
    """The transfer of one file, and its ad.

    :ivar report: the results if it succeeded
    :ivar errors: ads about the failed attempts
    """

    def __init__(self, url: str, name: str, *, upload: bool) -> None:
        self._url = url
        self._name = name
        self._upload = upload
        self._began = time.time()
        self._reason = ""
        self._tries = 0
        self.report: TransferReport | None = None
        self.errors: list[Mapping[str, Value]] = []

    async def run(self) -> None:
        """Transfer the file; raises nothing."""
        from coalloc.errors import CoallocError, UsageError

        try:
            if self._upload:
                raise UsageError("coget does not upload files from this machine", "name another plugin for it")
            if not (self._url and self._name):
                raise UsageError("the ad has no Url or no LocalFileName", "report this to the admin of the pool")
            await self._download()
        except CoallocError as error:
            self._failed(error, None)
        except Exception as error:  # a defect: the other files are still transferred
            self._failed(CoallocError(f"a defect of coget: {type(error).__name__}: {error}", "please report it"), None)

    async def _download(self) -> None:
        import asyncio
        from random import Random

        from coalloc import api
        from coalloc.errors import CoallocError, DiskFull
        from coalloc.partial_file import clear_left
        from coalloc.schedule.pauses import pause_seconds
        from coalloc.util.partial_names import data_folder

        target, last = Path(self._name), False
        request = api.Request(
            self._sources,
            output=target,
            overwrite=True,
            one_file=True,
            credentials=api.Credentials(own=False),  # those of the environment are the daemon's
        )
        while not self.report and not last:
            self._tries += 1
            results: api.Results[TransferReport] = api.Results()
            try:
                (self.report,) = await api.download(request, results=results)
            except CoallocError as error:
                self._failed(error, results.unfinished)
                last = not error.transient or self._tries == TRIES
                if last and not isinstance(error, DiskFull):  # HTCondor looks at what fills the disk
                    clear_left(target, None, data_folder(target.name))  # not if another process fetches it
                if not last:
                    await asyncio.sleep(pause_seconds(self._tries, None, Random()))

    @property
    def _sources(self) -> tuple[str, ...]:
        from coalloc.plugins.names import sources

        scheme, _, rest = self._url.partition("://")
        return sources(rest if scheme.lower() in ("coget", "replica") else self._url)

    def _failed(self, error: "CoallocError", report: "TransferReport | None") -> None:
        from coalloc.plugins.condor_errors import error_ads

        self._reason = " ".join(f"{error}: {error.remedy}".split())
        self.errors += error_ads(error, self._sources, report, VERSION)

    @property
    def ad(self) -> "dict[str, Value]":
        """The result as HTCondor expects it."""
        report = self.report
        received = sum(source.bytes for source in report.sources) if report else 0
        ready = [each.ready_seconds for each in report.sources if each.ready_seconds is not None] if report else []
        ad: dict[str, Value] = {
            "TransferSuccess": report is not None,
            "TransferProtocol": self._url.partition("://")[0],
            "TransferType": "upload" if self._upload else "download",
            "TransferFileName": self._name,
            "TransferUrl": self._url,
            "TransferFileBytes": report.size if report else 0,
            "TransferTotalBytes": received,
            "TransferStartTime": int(self._began),
            "TransferEndTime": int(time.time()),
            "ConnectionTimeSeconds": float(min(ready, default=0.0)),
            "DeveloperData": {"Tries": self._tries, **(_summary(report) if report else {})},
        }
        if not report:
            ad["TransferError"] = self._reason
        if self.errors:
            ad["TransferErrorData"] = self.errors
        return ad


def _summary(report: "TransferReport") -> "dict[str, Value]":
    """Return what users want to know about a transfer: its sources, rate and verification."""
    from coalloc.safe_text import redact

    checksum = f"{report.checksum.algorithm}:{report.checksum.value}" if report.checksum else None
    sources = [
        {"Url": redact(each.url), "Bytes": each.bytes, "Outcome": each.outcome, "Error": each.error}
        for each in report.sources
    ]
    return {"Rate": report.rate, "Verified": report.verified, "Checksum": checksum, "Sources": sources}
