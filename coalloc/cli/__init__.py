"""The command line `coget`, one module per command: they call `coalloc.api` and print the results.

These modules import large libraries only inside functions, so that `coget --help` appears at once.
"""

from coalloc.cli.main import main

__all__ = ["main"]
