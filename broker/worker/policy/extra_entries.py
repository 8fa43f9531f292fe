"""Deletion of extra entries, which only the destination of a sync has. In doubt, nothing is deleted."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from broker.models.tasks import Details, Event, FilterRule, Work
from broker.models.work import PlannedWork
from broker.worker.policy.selection import included
from coalloc.model.listings import Entry, Omission
from coalloc.safe_text import one_line

__all__ = ["EXTRA", "PRUNE", "Reason", "deletion", "extras", "meant", "related", "untouched"]

PRUNE, EXTRA = 2, 3
"""The phases in which extra entries are found and deleted: after all files are copied and links are made."""
WHY: Mapping[str, str] = {
    "hidden": "nothing in {folder} is deleted: the source's server counts {entries} entries more than it names, "
    "for example dangling links",
    "nameless": "nothing in {folder} is deleted: {entries} lines of the source's listing have no name: {example!r}",
    "twice": "nothing in {folder} is deleted: the source's listing names {example!r} twice",
    "names": "nothing in {folder} is deleted: the destination does not list {entries} names that the source has, "
    "such as {example!r}; it may treat different names as equal",
    "link": "nothing in {folder} is deleted: a symbolic link at the destination leads there",
    "shared": "nothing in {folder} is deleted: it is the same directory as {example}, to which the task copies, too",
    "source": "{folder}{example} is not deleted: it is the source of the task, is inside it, or contains it",
    "exchanged": "{folder} is not deleted: it was replaced since it was listed",
    "moved": "nothing in {folder} is deleted: the directory at the source was replaced during the task",
    "copied": "{folder}{example} is not deleted: it was at the source when the task began",
    "left": "{folder} is not deleted: it is not empty, for example because of dangling links",
}


class Reason(NamedTuple):
    """A reason not to delete entries that are only at the destination.

    `hidden`, `nameless`, `twice`: the source's listing may be incomplete; `names`: names of the source are missing in
    the destination's listing; `link`: a link leads to the directory, which may belong to another user; `shared`: the
    directory is also the destination of another directory of the task; `source`: entries belong to the source;
    `exchanged`: another directory or file has replaced it; `moved`: the source directory was replaced; `copied`: the
    task has copied entries that the source lacks now; `left`: not all of its entries were deleted.

    :param entries: number of entries or names that the reason is about
    :param example: one of them; for `shared`, the other directory
    """

    kind: Literal[
        "hidden", "nameless", "twice", "names", "link", "shared", "source", "exchanged", "moved", "copied", "left"
    ]
    entries: int = 1
    example: str = ""

    @classmethod
    def of(cls, omission: Omission) -> "Reason":
        """Return the reason that follows from an omission in the source's listing."""
        return cls(*omission)


def untouched(folder: str, reason: Reason, now: float) -> Event:
    """Return the event that states why entries of a directory at the destination are not deleted.

    :param now: seconds since the epoch
    """
    message = one_line(WHY[reason.kind].format(folder=folder, entries=reason.entries, example=reason.example))
    return Event(now, "DELETE_DESTINATION_EXTRA_SKIPPED", False, "nothing is deleted", message)


def extras(
    there: Iterable[Entry],
    names: Collection[str],
    rules: Sequence[FilterRule],
    folder: str,
    items: Sequence[str],
    ours: Collection[str] = (),
) -> list[Entry]:
    """Return the entries of a directory at the destination that the source does not have, except filtered names.

    :param names: names in the source's directory
    :param items: destinations of the task's items
    :param ours: temporary names of workers, according to the database
    """
    return [
        entry
        for entry in there
        if entry.name not in names
        and included(entry.name, entry.kind == "dir", rules)
        and entry.name not in ours
        and not meant(folder + entry.name, items)
    ]


def deletion(work: Work, entry: Entry, within: str | None) -> PlannedWork:
    """Return the work item that deletes an extra entry; for a link, it deletes only the link.

    :param within: identity of the entry's directory
    """
    found = "dir" if entry.kind == "dir" and entry.link_target is None else "file"
    depth = work.details.depth + 1
    details = Details(entry.modified, recursive=True, depth=depth, found=found, unique=entry.unique, within=within)
    return PlannedWork("delete", work.destination + entry.name, details=details, phase=EXTRA)


def meant(path: str, destinations: Sequence[str]) -> bool:
    """Return whether an entry at the destination may come from another item of the task.

    It may if it is inside the destinations of two items, or if it is or contains the destination of one.

    >>> meant("/t/b", ["/t/", "/t/b/"]), meant("/t/old", ["/t/"]), meant("/t/x", ["/t/", "/t"])
    (True, False, True)
    """
    folders = [each.rstrip("/") for each in destinations]
    around = sum(path.startswith(f"{folder}/") for folder in folders)
    return around > 1 or any(folder == path or folder.startswith(f"{path}/") for folder in folders)


def related(one: str, other: str) -> bool:
    """Return whether two paths of one server are equal or one contains the other.

    >>> related("/a/b/", "/a"), related("/a", "/a/b"), related("/a", "/ab"), related("/", "/x")
    (True, True, False, True)
    """
    one, other = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return one.startswith(other) or other.startswith(one)
