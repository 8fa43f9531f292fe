"""The first import of the compiler of forecasters, which must not happen in two threads at once."""

from threading import Lock

from predictors.compiled import compiler

__all__ = ["load_compiler"]

LOADING = Lock()


def load_compiler() -> None:
    """Import the compiler, or wait until another thread has imported it.

    :raises MissingLibraryError: when it is not installed, or cannot be loaded
    """
    with LOADING:
        compiler()
