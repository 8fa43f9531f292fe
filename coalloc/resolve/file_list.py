"""Lists of files to fetch, one file a line, as for `coget get -i`. Pure.

    # comments and empty lines are skipped
    https://a.example/x.root
    https://a.example/y.root ftp://b.example/y.root
      out=2024/y.root
      checksum=sha-256=0a1b...
    run3.meta4

Several URLs on a line are replicas of the same file, separated by tabs or spaces. In a line with a tab, spaces are part
of the URLs, as in the lists of aria2. An indented line is an option of the file above it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from coalloc.errors import TooMuch, UsageError
from coalloc.model.checksums import Checksum
from coalloc.resolve.file_names import why_unsafe
from coalloc.util import checksums
from coalloc.util.listing_limits import MOST_BELOW, MOST_NAMES

__all__ = ["MOST_IN_LINE", "ListedFile", "at_line", "read"]

MOST_CHARACTERS = 4 * MOST_NAMES
"""Maximum characters of a list, so that it fits in memory."""
MOST_IN_LINE = 1 << 20
"""Maximum characters of a line; a reader must not pass on longer ones."""
KNOWN = "write out=NAME or checksum=ALGORITHM=HEX, or begin a line with a URL in its first column"


class ListedFile(NamedTuple):
    """A line of a list: replica URLs of one file, a Metalink, or a dataset; the number of the line; its options."""

    sources: tuple[str, ...]
    line: int
    out: str | None = None
    checksum: Checksum | None = None


def read(lines: Iterable[str]) -> list[ListedFile]:
    """Return the files of a list. The URLs are not checked.

    :param lines: the lines, each of at most `MOST_IN_LINE` characters, so that one without end takes no memory

    >>> read(["ftp://a/x\\n", "  out=sub/y\\n"])
    [ListedFile(sources=('ftp://a/x',), line=1, out='sub/y', checksum=None)]

    :raises UsageError: for an invalid line, which the message names by its number
    :raises TooMuch: if the list is too long
    """
    files, length = list[ListedFile](), 0
    for number, text in _numbered(lines):
        length += len(text)
        if length > MOST_CHARACTERS or len(files) >= MOST_BELOW:
            raise TooMuch(
                f"the list has more than {MOST_BELOW} files or {MOST_CHARACTERS} characters", "give it in parts"
            )
        try:
            if text[0].isspace():
                files[-1:] = [_with_option(files[-1] if files else None, text.strip())]
            else:
                files.append(_file(text, number))
        except UsageError as error:
            raise at_line(number, error) from None
    return files


def at_line(number: int, error: UsageError) -> UsageError:
    """Return an error that names the line of the list."""
    return UsageError(f"line {number} of the list: {error.message}", error.remedy)


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither empty nor comments, with their numbers."""
    for number, line in enumerate(lines, 1):
        text = line.rstrip()
        if text and not text.lstrip().startswith("#"):
            yield number, text


def _file(text: str, number: int) -> ListedFile:
    words = text.split("\t") if "\t" in text else text.split()
    return ListedFile(tuple(word for word in map(str.strip, words) if word), number)


def _with_option(file: ListedFile | None, text: str) -> ListedFile:
    name, equals, value = text.partition("=")
    if file is None or not equals or name not in ("out", "checksum"):
        raise UsageError(f"{text[:100]!r} is not an option of a file", KNOWN)
    if name == "checksum":
        algorithm, _, digest = value.replace(":", "=", 1).partition("=")
        return file._replace(checksum=checksums.checksum(algorithm, digest))
    if reason := why_unsafe(value):
        raise UsageError(f"the file name {value[:100]!r} {reason}", "write a path below the directory of -o")
    return file._replace(out=value)
