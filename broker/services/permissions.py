"""Who may see which path of a collection, and change it; pure."""

from collections.abc import Iterable
from typing import Literal, cast

from broker.models.access import Caller, Role
from broker.models.collections import AccessRule, Collection
from broker.models.identities import identity, named

__all__ = ["ANONYMOUS", "NOBODY", "Granted", "granted"]

Granted = Literal["", "r", "rw"]
"""Nothing, to read, to read and write."""
ANONYMOUS = "anonymous"
"""The subject of who has no token."""
NOBODY = Caller(subject=ANONYMOUS, role="reader")
"""A caller without a token."""


def granted(caller: Caller, collection: Collection, rules: Iterable[AccessRule], path: str | None = None) -> Granted:
    """What a caller may at a path; None: somewhere in the collection.

    Its owner and admins may all; others what the rule grants that is the most generous of those that fit. The
    catalogue is for reading, whoever asks.
    """
    if caller.subject == collection.owner or caller.may("admin"):
        most: Granted = "rw"
    else:
        most = max((rule.permissions for rule in rules if _fits(rule, caller, path)), key=len, default="")
    return "r" if most and collection.kind == "catalogue" else most


def _fits(rule: AccessRule, caller: Caller, path: str | None) -> bool:
    if path is not None and not f"{path}/".startswith(rule.path):
        return False
    if rule.principal_type == "anonymous":
        return True
    if caller.subject == ANONYMOUS:
        return False
    if rule.principal_type == "role":
        return caller.may(cast(Role, rule.principal))
    return rule.principal_type == "all_authenticated_users" or named(rule.principal) == identity(caller.subject)
