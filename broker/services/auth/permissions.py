"""Permissions of callers to read and write paths of collections."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, cast

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


def granted(caller: Caller, collection: Collection, rules: Iterable[AccessRule]) -> Granted:
    """Return the highest permission of a caller for any path of a collection.

    The owner and admins may read and write. Others have the permission of the most generous rule that matches. The
    catalogue is read-only for everybody.

    :param rules: rules of the collection; a rule that names a UUID belongs to an unknown user, and matches no caller
    """
    if _rules_all(caller, collection):
        return _limited(collection, "rw")
    return _limited(collection, max((rule.permissions for rule in rules if _fits(rule, caller)), key=len, default=""))


class _Folder:
    """A directory in rules, with the directories in it; `permission` is for all paths in it."""

    def __init__(self) -> None:
        self.permission: Granted = ""
        self.inner: dict[str, _Folder] = {}


class Reach:
    """The access rights of a caller in a collection.

    Only rules that fit the caller are kept, as a tree of directories: the cost of a check depends on the path, and not
    on the number of rules.

    :param rules: rules of the collection
    :param sharer: present rights of a guest collection's owner in its host, which limit those of all guests
    """

    def __init__(
        self, caller: Caller, collection: Collection, rules: Iterable[AccessRule], sharer: "Reach | None" = None
    ) -> None:
        self.caller = caller
        self.collection = collection
        self._sharer = sharer
        self._root = _Folder()
        fitting = [] if _rules_all(caller, collection) else [rule for rule in rules if _fits(rule, caller)]
        self._highest = granted(caller, collection, fitting)
        for rule in fitting:
            folder = self._root
            for name in rule.path.split("/")[:-1]:  # a rule's path ends with a slash
                folder = folder.inner.setdefault(name, _Folder())
            folder.permission = max(folder.permission, rule.permissions, key=len)
        if not fitting:
            self._root.permission = self._highest

    def may(self, path: str | None, writes: bool) -> bool:
        """Return whether the caller may read a path, or write it if `writes`; None for any path of the collection."""
        if ("w" if writes else "r") not in (self._highest if path is None else self._at(path)):
            return False
        share = self.collection.share
        if share is None:
            return True
        there = None if path is None else below(share.folder, path)
        return share.allowed and self._sharer is not None and self._sharer.may(there, writes)

    def _at(self, path: str) -> Granted:
        folder, most = self._root, self._root.permission
        for name in path.split("/"):
            if name not in folder.inner:
                break
            folder = folder.inner[name]
            most = max(most, folder.permission, key=len)
        return _limited(self.collection, most)

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

    The owner of a guest collection has only the rights in the host that rules give to the owner's subject. Rights of a
    role or of an admin do not count, since the owner's present role is not known.

    :param collections: the host, if it is a guest collection, by id
    :param rules: rules of the collection and of its host, by id
    """
    own = rules.get(str(collection.id), ())
    if collection.share is None or (host := collections.get(str(collection.share.host))) is None:
        return Reach(caller, collection, own)
    sharer = Caller.model_construct(subject=collection.owner, role="reader", site="")
    by_name = [rule for rule in rules.get(str(host.id), ()) if rule.principal_type != "role"]
    return Reach(caller, collection, own, Reach(sharer, host, by_name))


def _rules_all(caller: Caller, collection: Collection) -> bool:
    """Return whether a caller needs no rules, as the owner and admins."""
    return caller.may("admin") or ANONYMOUS != caller.subject == collection.owner


def _limited(collection: Collection, most: Granted) -> Granted:
    return "r" if most and collection.kind == "catalogue" else most


def _fits(rule: AccessRule, caller: Caller) -> bool:
    if rule.principal_type == "anonymous":
        return True
    if caller.subject == ANONYMOUS:
        return False
    if rule.principal_type == "role":
        return caller.may(cast(Role, rule.principal))
    if rule.principal_type == "all_authenticated_users":
        return True
    return rule.principal == caller.subject and number(rule.principal) is None
