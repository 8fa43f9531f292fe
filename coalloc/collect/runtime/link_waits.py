"""The waits of a link for this machine: for a free connection to its server, or for its turn if the rate is limited."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["LinkWaits"]

SHORT = 1.0
"""Seconds up to which waits are not reported."""


class LinkWaits:
    """The waits of one link.

    :param held: callback with True when the link has waited for `SHORT`, and with False when no wait is left
    """

    def __init__(self, held: Callable[[bool], None]) -> None:
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reported = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time within as a wait."""
        self._count += 1
        if self._timer is None:
            self._timer = self._loop.call_later(SHORT, self._report)
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._timer.cancel()
                self._timer = None
                if self._reported:
                    self._reported = False
                    self._held(False)

    def _report(self) -> None:
        self._reported = True
        self._held(True)
