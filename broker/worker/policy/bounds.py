"""A bound on the work that one task finds: a server that invents folders would fill the database. Pure."""

from broker.models.tasks import Work
from coalloc.errors import LimitExceeded
from coalloc.util.listing_limits import DEEPEST

__all__ = ["MOST_WORK", "refuse_deep", "refuse_endless"]

MOST_WORK = 10_000_000
"""Files, folders and links of one task."""


def refuse_deep(work: Work) -> None:
    """Check that a folder is not deeper than real folders are.

    :raises LimitExceeded: when it is, naming the folder
    """
    if work.details.depth > DEEPEST:
        raise LimitExceeded(f"{work.source} is more than {DEEPEST} folders deep", "submit a task for this folder")


def refuse_endless(work: Work, total: int) -> None:
    """Check that a task with so many work items may have more.

    :raises LimitExceeded: when it may not, naming the folder that has too many entries
    """
    if total > MOST_WORK:
        raise LimitExceeded(
            f"{work.source}: with what is in this folder, the task has more than {MOST_WORK} files and folders",
            "submit a task for each of the folders in it",
        )
