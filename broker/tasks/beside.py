"""Names under which files are written until they are whole: random, on record, one for each worker that was lost.

Users' files may be called anything. So no name of ours can be taken for theirs, or the other way around: each has the
number of a piece of work and what only the random number of its task tells, so that who sees one foresees no other, and
counts as ours only where that work is in the database. A worker that was taken for dead may go on for a while: what it
writes has a name that whoever takes its work never uses, and all names that a piece of work ever had can be told from
its row, also when its task is over.
"""

import hashlib
import re
from collections.abc import Iterable

from broker.models.tasks import Work
from coalloc.partial import LONGEST, beside, data_folder

__all__ = ["earlier", "folder", "folders", "names", "on_record", "temporary", "written"]

FORMER = 200
"""Bytes of a file's name in that of its partial data, when this had the beginning of the task's number only."""
OURS = re.compile(r"\..*\.coget-(?:[0-9a-f]{32}|[0-9a-f]{8})-([1-9][0-9]{0,17})(?:-[0-9]+)?(?:\.coget)?", re.DOTALL)


def temporary(path: str, work: Work) -> str:
    """Return the name beside a path that is written now: the same for the same work, until a worker is lost with it.

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
    """Return all names under which a path was ever written, also by brokers of before; the last is that of now."""
    attempts = [work._replace(lost=lost) for lost in range(work.lost + 1)]
    former = [_beside(path, each, work.task_id[:8], FORMER) for each in attempts]
    former += [_beside(path, each, work.task_id.replace("-", "")) for each in attempts]
    return [*former, *(temporary(path, each) for each in attempts)]


def earlier(path: str, work: Work) -> list[str]:
    """Return names under which a path may have been written before, which are nobody's now."""
    return names(path, work)[:-1] if work.lost or work.attempt > 1 else []


def folder(name: str) -> str:
    """Return the name of the folder in which a file is written that comes to this machine, for one from here.

    >>> folder("/a/.run.root.coget-0123abcd0123456789ab0123456789ab-7")
    '.run.root.coget-0123abcd0123456789ab0123456789ab-7.coget'
    """
    return data_folder(name.rpartition("/")[2])


def folders(path: str, work: Work) -> list[str]:
    """Return the names of all folders in which a path was ever written; the last is that of now."""
    return [folder(name) for name in names(path, work)]


def written(name: str) -> int | None:
    """Return the number of the work that may be written under a name in a folder; None where it cannot be any.

    >>> written(".x.coget-0123abcd0123456789ab0123456789ab-7-2.coget"), written("run2.coget"), written(".x.coget-7")
    (7, None, None)
    """
    found = OURS.fullmatch(name)
    return int(found[1]) if found else None


def on_record(works: Iterable[Work]) -> set[str]:
    """Return all names that files and folders of ours ever had for this work, as they are called in their folders."""
    found = {name.rpartition("/")[2] for work in works for name in names(work.destination, work)}
    return found | {folder(name) for name in found}


def _beside(path: str, work: Work, key: str, longest: int = LONGEST) -> str:
    lost = f"-{work.lost}" if work.lost else ""
    return beside(path, f"{key}-{work.id}{lost}", longest)
