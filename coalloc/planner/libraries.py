"""The libraries that solvers need, and the light client starts without."""

from collections.abc import Iterator
from contextlib import contextmanager

from coalloc.errors import UsageError

__all__ = ["needed"]


@contextmanager
def needed() -> Iterator[None]:
    """Around imports of modules that need them.

    :raises UsageError: when they are not installed
    """
    try:
        yield
    except ImportError:
        raise UsageError("plans need NumPy and SciPy", "run: pip install 'coget[planner]'") from None
