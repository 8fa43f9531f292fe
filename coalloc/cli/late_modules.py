"""Late loading of modules of the standard library that others import, but that few commands use.

asyncio and click import them at their beginning. They take a quarter of the time in which asyncio is imported.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from textwrap import dedent
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

__all__ = ["install"]

LATE = frozenset({"asyncio.sslproto", "inspect", "ssl"})
"""Modules that are loaded when one of their attributes is used."""
_lock = RLock()


def cleandoc(doc: str) -> str:
    """Return a docstring without its indentation, as `inspect.cleandoc` does."""
    first, _, rest = doc.expandtabs().partition("\n")
    return f"{first.lstrip()}\n{dedent(rest)}".strip("\n")


EARLY = {"inspect": {"cleandoc": cleandoc}}
"""Attributes that a late module has at once: click calls this one for the help text of every option."""


class _LateModule(ModuleType):
    """A module that loads itself when one of its attributes is used."""

    def __getattr__(self, name: str) -> Any:
        loader = cast(_LateLoader, self.__spec__ and self.__spec__.loader)
        with _lock:
            loader.load(self)
        if type(self) is _LateModule:  # the module itself asks, before it has defined this name
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} yet")
        return getattr(self, name)


class _LateLoader:
    def __init__(self, loader: "Loader") -> None:
        self._loader = loader
        self._begun = False

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python create the module."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(EARLY.get(module.__name__, {}))
        module.__class__ = _LateModule

    def load(self, module: ModuleType) -> None:
        """Execute the module, unless that has begun; if it fails, the next use tries again."""
        if self._begun:
            return
        self._begun = True
        try:
            self._loader.exec_module(module)
            module.__class__ = ModuleType
        finally:
            self._begun = type(module) is ModuleType


class _LateFinder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target) if name in LATE else None
        if found and found.loader:
            found.loader = cast("Loader", _LateLoader(found.loader))
        return found


def install() -> None:
    """Load the modules late from now on, unless they are loaded already."""
    sys.meta_path.insert(0, _LateFinder)
