"""Selection of files in a directory by patterns, filter rules and sync levels, and limits on the work of one task.

Without the limits, a server that lists endless directories could fill the database.
"""

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from broker.models.tasks import FilterRule, Options, Work
from coalloc.errors import LimitExceeded
from coalloc.model.listings import Entry
from coalloc.util.listing_limits import DEEPEST

__all__ = ["MOST_WORK", "globbed", "included", "outdated", "refuse_deep", "refuse_endless"]

ESCAPED = re.compile(r"\\(.)")
MOST_WORK = 10_000_000
"""Highest number of files, directories and links of one task."""


def globbed(name: str) -> Callable[[str], bool] | None:
    r"""Return a function that matches names against a pattern; None if the name has no special characters.

    `*`, `?` and `[ ]` are special unless a backslash precedes them. As in a shell, hidden names match only patterns
    that begin with a dot.

    >>> [[each for each in ("a*", "ab", ".a") if globbed(name)(each)] for name in ("a?", r"a\*", "[!b]*", ".*")]
    [['a*', 'ab'], ['a*'], ['a*', 'ab'], ['.a']]
    """
    if not set(name) & set("*?[\\"):
        return None
    pattern = ESCAPED.sub(lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], name)
    return lambda called: called.startswith(".") <= name.startswith(".") and fnmatchcase(called, pattern)


def included(name: str, folder: bool, rules: Sequence[FilterRule]) -> bool:
    """Return whether an entry of this name is transferred: the first matching rule decides; without one, it is.

    >>> rules = (FilterRule(method="include", name="*.root"), FilterRule(method="exclude", name="*", type="file"))
    >>> included("a.root", False, rules), included("b.txt", False, rules), included("sub", True, rules)
    (True, False, True)
    """
    for rule in rules:
        if rule.type in (None, "dir" if folder else "file") and fnmatchcase(name, rule.name):
            return rule.method == "include"
    return True


def outdated(source: Entry, there: Entry | None, options: Options) -> bool | None:
    """Return whether a file must be copied according to the listings; None if checksums must be compared.

    The sync levels are those of Globus. A file is copied at level 0 if it is missing; at level 1, also if the sizes
    differ; at 2, also if the size differs or the source is newer; at 3, also if the size or checksum differs.
    """
    level = options.sync_level
    if level is None or there is None or there.kind != "file":
        return True
    if level == 0:
        return False
    if source.size != there.size:
        return True
    if level == 2:
        return (source.modified or 0.0) > (there.modified or 0.0)
    return None if level == 3 else False


def refuse_deep(work: Work) -> None:
    """Check that a directory is at most `DEEPEST` levels deep.

    :raises LimitExceeded: when it is deeper; the message names the directory
    """
    if work.details.depth > DEEPEST:
        raise LimitExceeded(f"{work.source} is more than {DEEPEST} levels deep", "submit a task for this directory")


def refuse_endless(work: Work, total: int) -> None:
    """Check that a task has at most `MOST_WORK` work items.

    :param work: the directory that was listed last
    :param total: number of the task's work items
    :raises LimitExceeded: when it has more; the message names the directory
    """
    if total > MOST_WORK:
        raise LimitExceeded(
            f"{work.source}: with this directory, the task has more than {MOST_WORK} files and directories",
            "submit a task for each of the directories in it",
        )
