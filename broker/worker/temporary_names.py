"""Temporary names of files that are being written: unpredictable, and new after each lost worker.

Users may give their files any name, and these must not be mistaken for temporary files, nor the reverse. Each temporary
name contains the number of a work item and a hash keyed with the id of its task, so that one name does not reveal
another; it counts as temporary only if this work item is in the database. A worker that counts as dead may still
write: the next worker with its work item uses another name. All names that a work item ever had can be derived from
its row, also after its task has ended.
"""

import hashlib
import re
from collections.abc import Iterable

from broker.models.tasks import Work
from coalloc.util.partial_names import LONGEST, beside, data_folder

__all__ = ["earlier", "folder", "folders", "names", "on_record", "temporary", "written"]

FORMER = 200
"""Most bytes of the file's name in a temporary name of older brokers, which had only the start of the task's id."""
OURS = re.compile(r"\..*\.coget-(?:[0-9a-f]{32}|[0-9a-f]{8})-([1-9][0-9]{0,17})(?:-[0-9]+)?(?:\.coget)?", re.DOTALL)


def temporary(path: str, work: Work) -> str:
    """Return the temporary path in the directory of a path; it changes only when a worker dies with the work item.

    >>> from broker.models.tasks import Details
    >>> work = Work(7, "0123abcd-0123-4567-89ab-0123456789ab", "copy", 0, "", "", 0, Details(), 1)
    >>> temporary("/a/run.root", work)
    '/a/.run.root.coget-bf36de56b2b356d5046887202e8fd9af-7'
    >>> temporary("/a/run.root", work._replace(lost=2))
    '/a/.run.root.coget-4e4e75191865cfe5cc8d21c632c1cc29-7-2'
    """
    what = f"{work.id}-{work.lost}".encode()
    return _beside(path, work, hashlib.blake2b(what, key=work.task_id.encode(), digest_size=16).hexdigest())


def names(path: str, work: Work) -> list[str]:
    """Return all temporary paths that a path ever had, also with older brokers; the current one is the last."""
    attempts = [work._replace(lost=lost) for lost in range(work.lost + 1)]
    former = [_beside(path, each, work.task_id[:8], FORMER) for each in attempts]
    former += [_beside(path, each, work.task_id.replace("-", "")) for each in attempts]
    return [*former, *(temporary(path, each) for each in attempts)]


def earlier(path: str, work: Work) -> list[str]:
    """Return the temporary paths that earlier attempts may have used, without the current one."""
    return names(path, work)[:-1] if work.lost or work.attempt > 1 else []


def folder(name: str) -> str:
    """Return the name of the directory in which a file is written when it is fetched to this machine.

    :param name: temporary path of the file

    >>> folder("/a/.run.root.coget-0123abcd0123456789ab0123456789ab-7")
    '.run.root.coget-0123abcd0123456789ab0123456789ab-7.coget'
    """
    return data_folder(name.rpartition("/")[2])


def folders(path: str, work: Work) -> list[str]:
    """Return the names of all directories in which a path may have been written; the current one is the last."""
    return [folder(name) for name in names(path, work)]


def written(name: str) -> int | None:
    """Return the number of the work item in a temporary name; None if the name cannot be temporary.

    >>> written(".x.coget-0123abcd0123456789ab0123456789ab-7-2.coget"), written("run2.coget"), written(".x.coget-7")
    (7, None, None)
    """
    found = OURS.fullmatch(name)
    return int(found[1]) if found else None


def on_record(works: Iterable[Work]) -> set[str]:
    """Return all names, without paths, that temporary files and directories of these work items ever had."""
    found = {name.rpartition("/")[2] for work in works for name in names(work.destination, work)}
    return found | {folder(name) for name in found}


def _beside(path: str, work: Work, key: str, longest: int = LONGEST) -> str:
    lost = f"-{work.lost}" if work.lost else ""
    return beside(path, f"{key}-{work.id}{lost}", longest)
