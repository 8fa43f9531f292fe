"""The common attributes of all displayed states, of coget's own transfers and of a broker's tasks."""

from typing import Protocol, TypeVar

__all__ = ["V", "View"]


class View(Protocol):
    """The attributes of every displayed state."""

    @property
    def name(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def done_bytes(self) -> int: ...
    @property
    def size(self) -> int | None: ...
    @property
    def rate(self) -> float: ...
    @property
    def eta_seconds(self) -> float | None: ...


V = TypeVar("V", bound=View)
