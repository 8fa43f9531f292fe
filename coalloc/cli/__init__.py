"""The command line `coget`, one module per command: they call `coalloc.api` and print the results.

These modules import large libraries only inside functions, so that `coget --help` appears at once.
"""

import os
import signal
import sys

if os.path.basename(sys.argv[0]) == "coget":  # noqa: PTH119 - pathlib is not loaded yet
    # Until `main` takes over, an interrupt ends the program without a traceback of half-loaded modules.
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))

from coalloc.cli import late_modules

late_modules.install()  # before the modules below import them

from coalloc.cli.main import main  # noqa: E402

__all__ = ["main"]
