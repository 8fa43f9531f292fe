"""Descriptions of a document's faults, in the names of the document rather than of the broker's own types."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import ErrorDetails

__all__ = ["fault_messages", "place", "why"]

Fault = ErrorDetails | dict[str, Any]
OBJECTS = frozenset({"dict_type", "model_type", "model_attributes_type"})
"""Types of faults whose messages name Python types; `why` replaces the messages."""
OUTSIDE = ("query", "path", "header", "cookie")


def fault_messages(faults: Iterable[Fault], document: object) -> list[str]:
    """Return the place and message of each fault, in the given order.

    :param document: document that was sent; for a request, its body
    """
    return [f"{'.'.join(place(each['loc'], document, each['type'] == 'missing'))}: {why(each)}" for each in faults]


def place(loc: Sequence[str | int], document: object, missing: bool = False) -> list[str]:
    """Return the path to a fault in the document, without pydantic's names of validators and union members.

    :param loc: place of the fault, from pydantic
    :param missing: whether the last part is the name of a missing field

    >>> place(("body", "list[function-after[_whole(), Site]]", 1, "name"), [{}, {"name": 5}])
    ['body', '1', 'name']
    >>> place(("body", "function-after[_whole(), Site]", "name"), {}, missing=True)
    ['body', 'name']
    >>> place(("query", "limit", "constrained-int"), None)
    ['query', 'limit']
    """
    if loc and loc[0] in OUTSIDE:
        return [str(each) for i, each in enumerate(loc) if i < 2 or isinstance(each, int)]
    found, here = [], document
    for i, each in enumerate(loc):
        if i == 0 and each == "body":
            found.append("body")
        elif isinstance(here, dict) and each in here:
            found.append(str(each))
            here = here[each]
        elif isinstance(each, int):
            found.append(str(each))
            here = here[each] if isinstance(here, list) and each < len(here) else None
        elif missing and i == len(loc) - 1:
            found.append(each)
    return found


def why(fault: Fault) -> str:
    """Return the message of a fault, in terms of JSON."""
    message: str = fault["msg"]
    return "Input should be an object" if fault["type"] in OBJECTS else message.removeprefix("Value error, ")
