"""Paths of the files to write, which never lead out of the directory that the user named."""

import os
import pwd
from contextlib import suppress
from pathlib import Path

from coalloc.errors import UsageError
from coalloc.partial_file.owned_directory import DIRECTORY
from coalloc.resolve.file_names import why_hidden, why_unsafe
from coalloc.util.disk import disk_error
from coalloc.util.partial_names import looks_partial, mark_fetched

__all__ = ["bounds", "target"]


def target(name: str, output: Path | None, many: bool, foreign: bool = False) -> Path:
    """Return the path for the file called `name`, a relative path from a URL or a Metalink.

    If `output` is a directory, or None for the current one, the path is inside it; any other `output` is the path
    itself. If `many` files are fetched, `output` must be a directory, or not exist. The directories in `name`, and
    `output` for `many` files, are created.

    :param foreign: whether the name comes from a server or document; it must then not begin with `.` or `-`, unless the
        user named a directory other than the home directory
    :raises UsageError: if the path would lead out of the directory, or `output` is a file and there are many
    :raises SinkError: if a directory cannot be created
    """
    try:
        if output is not None and not many and not output.is_dir():
            return output
        if output is not None and many and output.exists() and not output.is_dir():
            raise UsageError(f"{output} is a file, and several files are to be fetched", "choose a directory with -o")
        if foreign and (output is None or _is_home(output)) and (reason := why_hidden(name)):
            raise UsageError(
                f"the file name {name[:200]!r} {reason}", "choose a directory for it, or a file name, with -o or --to"
            )
        if foreign and _leads_to_settings(output or Path(), name):
            raise UsageError(
                f"the file name {name[:200]!r} leads to a name in the home directory that begins with '.' or '-'",
                "choose another directory, or a file name, with -o or --to",
            )
        return _inside(output or Path(), name)
    except OSError as error:
        raise disk_error(error, "create", (output or Path()) / name) from None


def bounds(output: Path | None, many: bool) -> Path | None:
    """Return the real path of the directory that the target must be in; None if the user named the file itself."""
    named = output is not None and not many and not output.is_dir()
    return None if named else Path(os.path.realpath(output or Path()))


def _is_home(directory: Path) -> bool:
    return Path(os.path.realpath(directory)) in _homes()


def _homes() -> list[Path]:
    homes = [os.environ.get("HOME")]
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    return [Path(os.path.realpath(home)) for home in homes if home]


def _leads_to_settings(directory: Path, name: str) -> bool:
    """Return whether a name leads to a part beginning with '.' or '-' in a home directory, at or below `directory`."""
    top, path = Path(os.path.realpath(directory)), directory / name
    real = Path(os.path.realpath(path.parent)) / path.name
    around = [home for home in _homes() if home.is_relative_to(top) and real.is_relative_to(home)]
    return any(part.startswith((".", "-")) for home in around for part in real.relative_to(home).parts)


def _inside(directory: Path, name: str) -> Path:
    remedy = "choose the file's name with -o"
    if reason := why_unsafe(name):
        raise UsageError(f"the file name {name[:200]!r} {reason}", remedy)
    path = directory / name
    # The directory may exist already, as a symbolic link to another place.
    top, folder = Path(os.path.realpath(directory)), Path(os.path.realpath(path.parent))
    if not folder.is_relative_to(top):
        raise UsageError(f"{path} would be outside of {directory}, because of a symbolic link", remedy)
    top.mkdir(parents=True, exist_ok=True)
    _make_folders(top, folder)
    return path


def _make_folders(top: Path, folder: Path) -> None:
    """Create the directories from `top` down to `folder`, without following symbolic links that replace one of them."""
    fd, path = os.open(top, os.O_PATH | DIRECTORY), top
    try:
        for part in folder.relative_to(top).parts:
            path /= part
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=fd)
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW | DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner
            if looks_partial(part):
                mark_fetched(path, fd)
    finally:
        os.close(fd)
