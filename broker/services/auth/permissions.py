"""Permissions of callers to read and write paths of collections."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, cast

from broker.models.callers import Caller, Role
from broker.models.collections import AccessRule, Collection
from broker.models.identities import number
from broker.services.collection_paths import below

__all__ = ["ANONYMOUS", "NOBODY", "Granted", "Reach", "granted", "reach_of"]

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
    """The access rights of a caller in a collection.

    :param sharer: present rights of a guest collection's owner in its host, which limit those of all guests
    """

    caller: Caller
    collection: Collection
    rules: Sequence[AccessRule]
    sharer: "Reach | None" = None

    def may(self, path: str | None, writes: bool) -> bool:
        """Return whether the caller may read a path, or write it if `writes`; None for any path of the collection."""
        if ("w" if writes else "r") not in granted(self.caller, self.collection, self.rules, path):
            return False
        share = self.collection.share
        if share is None:
            return True
        there = None if path is None else below(share.folder, path)
        return share.allowed and self.sharer is not None and self.sharer.may(there, writes)

    def ends(self, writes: bool) -> bool:
        """Return whether links may lead to paths that the caller may not read (or write, if `writes`).

        Those of a guest collection may, whatever the caller's rights.
        """
        return self.collection.share is not None or not self.may("/", writes)


def reach_of(
    caller: Caller,
    collection: Collection,
    collections: Mapping[str, Collection],
    rules: Mapping[str, Sequence[AccessRule]],
) -> Reach:
    """Return the access rights of a caller in a collection.

    The owner of a guest collection has only those rights in its host that its subject has, since its present role is
    not known: neither those of a role nor those of an admin.

    :param collections: the host, if it is a guest collection, by id
    :param rules: rules of the collection and of its host, by id
    """
    reach = Reach(caller, collection, rules.get(str(collection.id), ()))
    if collection.share is None or (host := collections.get(str(collection.share.host))) is None:
        return reach
    sharer = Caller.model_construct(subject=collection.owner, role="reader", site="")
    by_name = [rule for rule in rules.get(str(host.id), ()) if rule.principal_type != "role"]
    return reach._replace(sharer=Reach(sharer, host, by_name))


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
