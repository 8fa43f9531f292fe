"""The command line `coget`, one module per command: they call `coalloc.api` and print the results.

These modules import large libraries only inside functions, so that `coget --help` appears at once.
"""

from coalloc.cli import late_modules

late_modules.install()  # before the modules below import them

from coalloc.cli.main import main  # noqa: E402

__all__ = ["main"]
