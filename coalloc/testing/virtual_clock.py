"""An asyncio event loop whose clock jumps to the next due event, to simulate hours of transfers in milliseconds."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["VirtualClockLoop", "run"]

T = TypeVar("T")


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while any task can run, and jumps when all tasks wait."""

    def __init__(self) -> None:
        super().__init__(_JumpingSelector(self))
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run the function now, in this thread, as the virtual time would not wait for other threads."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def jump(self, seconds: float) -> None:
        """Advance the clock by `seconds`."""
        self._now += seconds


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualClockLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits and nothing is due: the program hangs")
        if ready := super().select(0):
            return ready
        self._loop.jump(timeout)
        return []


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, as asyncio.run does in real time."""
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(main)
