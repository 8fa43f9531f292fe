"""Who may see which path of a collection, and change it; pure."""

from collections.abc import Iterable
from typing import Literal, cast

from broker.models.access import Caller, Role
from broker.models.collections import AccessRule, Collection
from broker.models.identities import number

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

    :param rules: which name everybody who was ever here by the subject; a UUID is nobody's yet
    """
    if caller.may("admin") or ANONYMOUS != caller.subject == collection.owner:
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
    if rule.principal_type == "all_authenticated_users":
        return True
    return rule.principal == caller.subject and number(rule.principal) is None
