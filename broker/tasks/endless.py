"""A bound of what a task finds: a server that invents folders would fill the database. Pure."""

from broker.models.tasks import Work
from coalloc.bounds import DEEPEST
from coalloc.errors import LimitExceeded

__all__ = ["MOST_WORK", "refuse_deep", "refuse_endless"]

MOST_WORK = 10_000_000
"""Files, folders and links of one task."""


def refuse_deep(work: Work) -> None:
    """Return if a folder is as deep as folders are.

    :raises LimitExceeded: naming it
    """
    if work.details.depth > DEEPEST:
        raise LimitExceeded(f"{work.source} is more than {DEEPEST} folders deep", "submit a task for this folder")


def refuse_endless(work: Work, total: int) -> None:
    """Return if a task that has so many pieces of work may have more.

    :raises LimitExceeded: naming the folder that has too much
    """
    if total > MOST_WORK:
        raise LimitExceeded(
            f"{work.source}: with what is in this folder, the task has more than {MOST_WORK} files and folders",
            "submit a task for each of the folders in it",
        )
