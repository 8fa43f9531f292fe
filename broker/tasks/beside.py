"""Names under which files are written until they are whole: one for each worker that was taken for dead.

A worker that was taken for dead may go on for a while. So what it writes has a name that whoever takes its work never
uses, and all names that a piece of work ever had can be told from its row, also when its task is over.
"""

from broker.models.tasks import Work

__all__ = ["MARK", "abandoned", "folder", "names", "temporary"]

MARK = ".coget-"
LONGEST = 200
"""Bytes of a name that still has room for more beside it."""


def temporary(path: str, work: Work) -> str:
    """Return the name beside a path that is written now: the same for the same work, until a worker is lost with it.

    >>> from broker.models.tasks import Details
    >>> work = Work(7, "0123abcd-", "copy", 0, "", "", 0, Details(), 1)
    >>> temporary("/a/run.root", work)
    '/a/.run.root.coget-0123abcd-7'
    >>> temporary("/a/run.root", work._replace(lost=2))
    '/a/.run.root.coget-0123abcd-7-2'
    """
    parent, slash, name = path.rpartition("/")
    short = name.encode()[:LONGEST].decode(errors="ignore")
    lost = f"-{work.lost}" if work.lost else ""
    return f"{parent}{slash}.{short}{MARK}{work.task_id[:8]}-{work.id}{lost}"


def abandoned(work: Work) -> list[Work]:
    """Return the work as the workers had it that were lost with it: what they wrote is nobody's."""
    return [work._replace(lost=lost) for lost in range(work.lost)]


def names(path: str, work: Work) -> list[str]:
    """Return all names under which a path was ever written."""
    return [temporary(path, each) for each in (*abandoned(work), work)]


def folder(path: str, work: Work) -> str:
    """Return the name of the folder in which a file is written that comes to this machine; users cannot make such.

    >>> from broker.models.tasks import Details
    >>> folder("/a/run.root", Work(7, "0123abcd-", "copy", 0, "", "", 0, Details(), 1))
    '.run.root.coget-0123abcd-7.coget'
    """
    return f"{temporary(path, work).rpartition('/')[2]}.coget"
