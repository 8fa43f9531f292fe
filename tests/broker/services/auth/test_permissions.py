"""Permissions at paths: those of the rules that contain a path, at a cost that does not depend on their number."""

from collections import Counter
from typing import Any
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from broker.models.callers import Caller
from broker.models.collections import AccessRule, Collection
from broker.services.auth.permissions import Reach, granted

ANN = Caller(subject="ann", role="transfer")
NAMES = st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=4).map(lambda names: "/" + "/".join(names))
RULES = st.tuples(
    st.sampled_from(
        [
            ("identity", "ann"),
            ("identity", "bob"),
            ("role", "reader"),
            ("role", "curator"),
            ("all_authenticated_users", ""),
            ("anonymous", ""),
        ]
    ),
    NAMES.map(lambda path: f"{path.rstrip('/')}/"),
    st.sampled_from(["r", "rw"]),
).map(lambda each: rule(*each[0], *each[1:]))


def rule(kind: str, principal: str, path: str, permissions: str) -> AccessRule:
    values: dict[str, Any] = {"principal_type": kind, "principal": principal, "path": path, "permissions": permissions}
    return AccessRule.model_construct(**values, id=uuid4())


def collection(kind: str = "gridftp") -> Collection:
    return Collection.model_construct(id=uuid4(), name="c", kind=kind, owner="bob", share=None)


@given(st.lists(RULES, max_size=6), NAMES, st.sampled_from(["gridftp", "catalogue"]))
def test_a_path_has_the_permissions_of_all_rules_that_contain_it(rules, path, kind):
    place = collection(kind)
    for caller in (ANN, Caller(subject="anonymous", role="reader"), Caller(subject="bob", role="reader")):
        reach = Reach(caller, place, rules)
        around = granted(caller, place, [each for each in rules if f"{path}/".startswith(each.path)])
        assert (reach.may(path, False), reach.may(path, True)) == ("r" in around, "w" in around)
        anywhere = granted(caller, place, rules)
        assert (reach.may(None, False), reach.may(None, True)) == ("r" in anywhere, "w" in anywhere)


def test_the_rules_of_others_are_not_looked_at_for_each_path():
    """A submission may have 100,000 items, and a collection 1000 rules."""
    looks = Counter[str]()

    class Counted(AccessRule):
        def __getattribute__(self, name: str) -> Any:
            looks[name] += name == "path"
            return super().__getattribute__(name)

    rules = [Counted(**dict(rule("identity", user, f"/{user}/", "rw"))) for user in ("ann", "bob", "eve")]
    reach = Reach(ANN, collection(), rules)
    built = looks["path"]
    assert all(reach.may(f"/ann/{number}", True) for number in range(100))
    assert not reach.may("/bob/x", False)
    assert (built, looks["path"]) == (1, built)
