"""What all that is shown has in common, be it a transfer of ours or a broker's task."""

from typing import Protocol, TypeVar

__all__ = ["V", "View"]


class View(Protocol):
    """What all that is shown has."""

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
