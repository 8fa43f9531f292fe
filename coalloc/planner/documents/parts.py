"""The parts of a document, each with its path, so that errors can name the part."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from coalloc.errors import UsageError

__all__ = ["DocumentPart", "Misread"]

Value = TypeVar("Value")
Step = str | int
KINDS = {dict: "a mapping", list: "a list", int: "a number", type(None): "nothing"}


class Misread(UsageError):
    """An error in a document; `path` leads to the invalid part."""

    def __init__(self, path: tuple[Step, ...], what: str, remedy: str) -> None:
        self.path = path
        self.what = what
        super().__init__(f"{', '.join(map(_shown, path))}: {what}" if path else what, remedy)


def _shown(step: Step) -> str:
    return f"number {step + 1}" if isinstance(step, int) else step


@dataclass(frozen=True)
class DocumentPart:
    """A value in a document, made of mappings, lists, strings and numbers, and the path to it."""

    value: Any
    path: tuple[Step, ...] = ()

    def wrong(self, what: str, remedy: str) -> Misread:
        """Return the error for this part."""
        return Misread(self.path, what, remedy)

    def items(self, like: str) -> Iterator[tuple[str, "DocumentPart"]]:
        """Yield the items of a mapping whose keys are any names; None counts as an empty mapping.

        :param like: example of a correct mapping, for the error message
        """
        if self.value is None:
            return
        if not isinstance(self.value, dict):
            raise self.wrong(f"{_brief(self.value)} is not a mapping", f"write for example {like}")
        for key, value in self.value.items():
            if not isinstance(key, str) or not key:
                raise self.wrong(f"{_brief(key)} is not a name", "write a string, if necessary in quotes")
            yield key, DocumentPart(value, (*self.path, key))

    def fields(self, *known: str) -> dict[str, "DocumentPart"]:
        """Return the items of a mapping whose keys must be among `known`, without items that have no value."""
        found = dict(self.items(", ".join(f"{key}: ..." for key in known[:2])))
        for key, part in found.items():
            if key not in known:
                raise part.wrong("unknown key", f"use {', '.join(known)}")
        return {key: part for key, part in found.items() if part.value is not None}

    def elements(self, like: str) -> list["DocumentPart"]:
        """Return the elements of a list.

        :param like: example of a correct list, for the error message
        """
        if not isinstance(self.value, list):
            raise self.wrong(f"{_brief(self.value)} is not a list", f"write for example {like}")
        return [DocumentPart(value, (*self.path, i)) for i, value in enumerate(self.value)]

    def read(self, how: Callable[[object], Value]) -> Value:
        """Return a quantity, parsed by a function of `units`."""
        try:
            return how(self.value)
        except ValueError as error:
            what, _, remedy = str(error).partition("; ")
            raise self.wrong(what, remedy) from None

    def text(self) -> str:
        """Return a string; refuse a blank one."""
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.wrong(f"{_brief(self.value)} is not a name", "write a string, if necessary in quotes")
        return self.value

    def flag(self) -> bool:
        """Return a boolean."""
        if not isinstance(self.value, bool):
            raise self.wrong(f"{_brief(self.value)} is neither true nor false", "write true or false")
        return self.value


def _brief(value: object) -> str:
    return KINDS.get(type(value)) or repr(value)[:60]
