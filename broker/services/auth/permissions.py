"""Permissions of callers to read and write paths of collections."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast

from broker.models.callers import Caller, Role
from broker.models.collections import AccessRule, Collection
from broker.models.identities import number

__all__ = ["ANONYMOUS", "NOBODY", "Granted", "Reach", "granted"]

Granted = Literal["", "r", "rw"]
"""Permissions: none, read, read and write."""
ANONYMOUS = "anonymous"
"""The subject of callers without a token."""
NOBODY = Caller(subject=ANONYMOUS, role="reader")
"""A caller without a token."""


def granted(caller: Caller, collection: Collection, rules: Iterable[AccessRule], path: str | None = None) -> Granted:
    """Return the permission of a caller at a path.

    The owner and admins may read and write. Others have the permission of the most generous rule that matches. The
    catalogue is read-only for everybody.

    :param rules: rules of the collection; a rule that names a UUID belongs to an unknown user, and matches no caller
    :param path: path in the collection; None to return the highest permission for any path
    """
    if caller.may("admin") or ANONYMOUS != caller.subject == collection.owner:
        most: Granted = "rw"
    else:
        most = max((rule.permissions for rule in rules if _fits(rule, caller, path)), key=len, default="")
    return "r" if most and collection.kind == "catalogue" else most


class Reach(NamedTuple):
    """The access rights of a caller in a collection."""

    caller: Caller
    collection: Collection
    rules: Sequence[AccessRule]

    def may(self, path: str | None, writes: bool) -> bool:
        """Return whether the caller may read a path, or write it if `writes`; None for any path of the collection."""
        return ("w" if writes else "r") in granted(self.caller, self.collection, self.rules, path)

    def ends(self, writes: bool) -> bool:
        """Return whether there are paths in the collection that the caller may not read (or write, if `writes`)."""
        return not self.may("/", writes)


def _fits(rule: AccessRule, caller: Caller, path: str | None) -> bool:
    if path is not None and not f"{path}/".startswith(rule.path):
        return False
    if rule.principal_type == "anonymous":
        return True
    if caller.subject == ANONYMOUS:
        return False
    if rule.principal_type == "role":
        return caller.may(cast(Role, rule.principal))
    if rule.principal_type == "all_authenticated_users":
        return True
    return rule.principal == caller.subject and number(rule.principal) is None
