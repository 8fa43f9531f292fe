"""Checks of the numbers and names that planners are given."""

from collections.abc import Iterable
from math import inf
from operator import index

from coalloc.errors import UsageError

__all__ = ["check_finite", "check_once", "check_same", "check_whole"]


def check_whole(what: str, *numbers: int | None) -> None:
    """Check that numbers are whole and not negative. :raises UsageError:"""
    for number in numbers:
        if number is None:
            continue
        try:
            index(number)
        except TypeError:
            remedy = "give whole bytes, or whole bytes per second"
            raise UsageError(f"{what} has the number {number!r}, which is not whole", remedy) from None
        if number < 0:
            raise UsageError(f"{what} has a negative number", "give bytes, or bytes per second, from 0")


def check_finite(what: str, *numbers: float | None) -> None:
    """Check that numbers are finite and not negative. :raises UsageError:"""
    for number in numbers:
        if number is not None and not 0 <= number < inf:
            raise UsageError(f"{what} has the invalid number {number!r}", "give a finite number from 0")


def check_once(what: str, names: Iterable[object]) -> None:
    """Check that no name occurs twice. :raises UsageError:"""
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"{what} occurs twice: {str(name)!r}", "leave out one of them, or rename it")
        seen.add(name)


def check_same(what: str, key: object, name: object) -> None:
    if key != name:
        raise UsageError(f"{what} has another name as its key, {str(key)!r}", "use its own name as the key")
