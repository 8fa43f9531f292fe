"""The display of a transfer for users and programs: three printers of one state.

`bars` draws `Snapshot`s on a terminal, `text` writes them as lines on other outputs, `download_report` summarizes the
finished transfer, and `json` makes the documents of `--json`. This package does not control transfers or choose between
printers; the commands do.
"""

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
