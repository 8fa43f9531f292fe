"""Input files of Parsl's tasks: `CogetStaging`, a staging provider that downloads where the task runs.

All tasks of one run that want the same file in the same working directory share one copy of it.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parsl.data_provider.staging import Staging
from parsl.utils import RepresentationMixin

from coalloc import api
from coalloc.errors import CoallocError, SinkError, TargetInUse
from coalloc.plugins.names import sources
from coalloc.resolve.file_names import from_url

if TYPE_CHECKING:
    from parsl.data_provider.data_manager import DataManager
    from parsl.data_provider.files import File

__all__ = ["CogetStaging", "fetch_input"]

OWN = ("coget", "replica")
SCHEMES = (*OWN, "dav", "davs", "ftp", "gsiftp", "http", "https", "osdf", "pelican", "s3", "sftp")
"""Schemes of files that this provider stages."""
MARK = ".coget-of"
"""Name of the file beside the input that has Parsl's name of the run that fetched it."""
WAIT_SECONDS = 0.5
"""Pause between looks at a file that another task fetches."""


class CogetStaging(Staging, RepresentationMixin):  # type: ignore[misc]
    """A provider of input files, for `storage_access` of an executor.

    A file is downloaded on the machine of the task, before the task, to a directory of its own below the working
    directory of the executor. A failure ends the task with a CoallocError, which a `retry_handler` can ask whether it
    is `transient`.
    """

    def can_stage_in(self, file: "File") -> bool:
        """Return whether coget fetches files of this scheme."""
        return file.scheme in SCHEMES

    def stage_in(self, dm: "DataManager", executor: str, file: "File", parent_fut: object) -> None:
        """Set the path of the file on the machine of the task; `replace_task` does the rest."""
        folder = dm.dfk.executors[executor].working_dir or ""
        file.local_path = str(Path(folder, _below(file.url)))

    def replace_task(
        self, dm: "DataManager", executor: str, file: "File", func: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return a function that fetches the file, and then calls `func`."""
        url, path, run = file.url, str(file.local_path), dm.dfk.run_id

        # Only a function can be a cached app, whose identity is its name and module. Parsl pickles it by value, with
        # the globals of that module: so it uses none of this one.
        def staged(*args: object, **kwargs: object) -> object:
            from coalloc.plugins.parsl_staging import fetch_input

            fetch_input(url, path, run)
            return func(*args, **kwargs)

        staged.__name__, staged.__module__ = getattr(func, "__name__", staged.__name__), func.__module__
        return staged


def _named(url: str) -> tuple[str, ...]:
    """Return the sources that the URL of a file names."""
    scheme, _, rest = url.partition(":")
    return sources(rest.removeprefix("//")) if scheme.lower() in OWN else (url,)


def _below(url: str) -> str:
    """Return the path of a file below the working directory, which is different for each URL.

    A file that a Metalink describes has the Metalink's name without `.meta4`.
    """
    first = _named(url)[0]
    name = from_url(first if "://" in first else "ftp://dataset/" + first.partition(":")[2]).removesuffix(".meta4")
    return f"coget-{sha256(url.encode()).hexdigest()[:16]}/{name or 'download'}"


def fetch_input(url: str, path: str, run: str) -> None:
    """Fetch a file before a task begins.

    :param run: Parsl's name of the run
    :raises CoallocError: with the remedy as a note
    """
    try:
        asyncio.run(_fetch(url, Path(path), run))
    except CoallocError as error:
        error.add_note(f"{error.remedy} ({'transient' if error.transient else 'permanent'}: {error.code})")
        raise


async def _fetch(url: str, path: Path, run: str) -> None:
    """Fetch a file, unless a task of this run has fetched it. Wait while another task does.

    A later run fetches the file anew, as it may have changed.
    """
    finished = path.parent / MARK
    try:
        _make(path.parent)
        while not _is_of(run, finished, path):
            with suppress(TargetInUse):
                await api.download(api.Request(_named(url), output=path, overwrite=True, one_file=True))
                finished.with_suffix(".new").write_text(run, encoding="utf-8")
                finished.with_suffix(".new").replace(finished)
                return
            await asyncio.sleep(WAIT_SECONDS)
    except OSError as error:
        raise SinkError(f"cannot write to {path.parent}: {error.strerror}", "choose another working_dir") from None


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.lstat().st_uid != os.geteuid():  # its owner could exchange a file after it was verified
        raise SinkError(f"{folder} belongs to another user", "choose another working_dir for the executor")


def _is_of(run: str, finished: Path, path: Path) -> bool:
    """Return whether a task of this run has fetched the file, and no task has removed it."""
    return path.is_file() and finished.is_file() and finished.read_text(encoding="utf-8") == run
