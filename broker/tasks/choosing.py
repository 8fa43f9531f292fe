"""What of a folder is meant: patterns, filter rules and sync levels; pure."""

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from broker.models.tasks import FilterRule, Options
from coalloc.model import Entry

__all__ = ["globbed", "included", "outdated"]

ESCAPED = re.compile(r"\\(.)")


def globbed(name: str) -> Callable[[str], bool] | None:
    r"""What fits a name with `*`, `?` or `[ ]`, or a backslash before these; None for one that is plain.

    As in a shell, what is hidden only fits what begins with a dot.

    >>> [[each for each in ("a*", "ab", ".a") if globbed(name)(each)] for name in ("a?", r"a\*", "[!b]*", ".*")]
    [['a*', 'ab'], ['a*'], ['a*', 'ab'], ['.a']]
    """
    if not set(name) & set("*?[\\"):
        return None
    pattern = ESCAPED.sub(lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], name)
    return lambda called: called.startswith(".") <= name.startswith(".") and fnmatchcase(called, pattern)


def included(name: str, folder: bool, rules: Sequence[FilterRule]) -> bool:
    """Whether something of this name is transferred: the first rule that fits it decides.

    >>> rules = (FilterRule(method="include", name="*.root"), FilterRule(method="exclude", name="*", type="file"))
    >>> included("a.root", False, rules), included("b.txt", False, rules), included("sub", True, rules)
    (True, False, True)
    """
    for rule in rules:
        if rule.type in (None, "dir" if folder else "file") and fnmatchcase(name, rule.name):
            return rule.method == "include"
    return True


def outdated(source: Entry, there: Entry | None, options: Options) -> bool | None:
    """Whether a file is to be copied, as far as two listings tell; None: only checksums do.

    Levels are Globus's: 0, it is missing; 1, or its size differs; 2, or the source is newer; 3, or checksums differ.
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
