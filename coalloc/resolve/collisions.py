"""Files that would be one where they go, because a file system holds different names for one, found before bytes move.

Which names it holds for one, only the file system itself knows: by case (exFAT, NTFS, some directories of ext4), by how
accents are written, by blanks at the end, by short names. It is asked, but only of names that are similar. Pure, but
for the question.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from coalloc.errors import UsageError
from coalloc.partial import data_folder

__all__ = ["Held", "refuse_collisions"]

Held = Callable[[str, Sequence[str]], Awaitable[Mapping[str, str]]]
"""`await held(folder, names)`: for each of these names, which of them the folder holds it for.

The folder is a path below the destination; it need not be there.
"""
MOST_FOLDERS = 100_000
"""Paths of these are held at once: few names go through very many."""
SHOWN = 200
"""Characters of a name in a message."""
SHORT = re.compile(r"~\d")
"""What a short name has that FAT makes for a long one. It is similar to any name."""


class Use(NamedTuple):
    """What a path is needed for, and of which file."""

    kind: Literal["file", "folder", "partial"]
    name: str


async def refuse_collisions(names: Sequence[str], held: Held, partial: bool = True, short: bool = True) -> None:
    """Return if each of these files has a place of its own.

    :param names: paths below one destination
    :param partial: whether partial data have places there, too, in `NAME.coget/`
    :param short: whether names may be short ones, as on file systems of this machine
    :raises UsageError: if two are one, or one is in the way of another
    """
    uses: dict[str, list[Use]] = defaultdict(list)
    for path, use in _uses(names):
        if partial or use.kind != "partial":
            uses[path].append(use)
    for similar in _similar(uses, short=short and any(map(SHORT.search, uses))):
        for same in await _one(similar, held):
            _refuse([use for path in same for use in uses[path]])


def _uses(names: Sequence[str]) -> Iterator[tuple[str, Use]]:
    folders = set()
    for name in names:
        yield name, Use("file", name)
        yield data_folder(name), Use("partial", name)
        folder = name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            if len(folders) > MOST_FOLDERS:
                raise UsageError(
                    f"the files would be in more than {MOST_FOLDERS} folders, {name[:SHOWN]!r} and others",
                    "fetch some of them at a time",
                )
            yield folder, Use("folder", name)
            folder = folder.rpartition("/")[0]


def _similar(paths: Collection[str], short: bool) -> list[list[str]]:
    """The paths that could be one, together; all of one depth where there are short names."""
    alike: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in paths:
        parts = path.split("/")
        alike[("",) * len(parts) if short else tuple(map(_core, parts))].append(path)
    return list(alike.values())


@lru_cache(maxsize=100_000)
def _core(name: str) -> str:
    """What is left of a name without all that any file system ignores, and more."""
    if name.isascii():
        return name.casefold().rstrip(" .")
    spelled = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
    return "".join(char for char in spelled if unicodedata.category(char)[0] not in "CM").rstrip(" .")


async def _one(paths: Sequence[str], held: Held) -> list[list[str]]:
    """The paths that are one, together. They have as many components each."""
    parts, depth = [list(paths)], paths[0].count("/") + 1 if len(paths) > 1 else 0
    for level in range(depth):
        split: list[list[str]] = []
        for part in parts:
            names = list(dict.fromkeys(path.split("/")[level] for path in part))
            folder = "/".join(part[0].split("/")[:level])
            known = await held(folder, names) if len(names) > 1 else {names[0]: names[0]}
            places: defaultdict[str, list[str]] = defaultdict(list)
            for path in part:
                places[known[path.split("/")[level]]].append(path)
            split += places.values()
        parts = split
    return parts


def _refuse(uses: Sequence[Use]) -> None:
    """Raise if one place cannot have these uses. Folders may be one."""
    count = Counter(use.kind for use in uses)
    first = {kind: next((use.name for use in uses if use.kind == kind), "") for kind in count}
    if count["file"] > 1:
        one, other = [use.name for use in uses if use.kind == "file"][:2]
        why = f"{one} and {other} would be one file: the file system holds their names for one"
    elif count["file"] and count["folder"]:
        why = f"{first['file']} would be a file, and the directory of {first['folder']}"
    elif count["partial"] and len(count) > 1:
        other = first.get("file") or first["folder"]
        why = f"{other} would be where the partial data of {first['partial']} are kept"
    else:
        return
    raise UsageError(why, "fetch them one after the other to different places")
