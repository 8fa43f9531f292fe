"""The command line: `coget`, one command a file. Commands turn words into calls of `coalloc.api` and show its values.

Modules here import nothing heavy at their top: `coget --help` must appear at once.
"""

from coalloc.cli.main import main

__all__ = ["main"]
