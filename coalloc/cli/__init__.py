"""The command line `coget`, one module per command: they call `coalloc.api` and print the results.

Modules here import nothing heavy at their top, so that `coget --help` appears at once.
"""

from coalloc.cli.main import main

__all__ = ["main"]
