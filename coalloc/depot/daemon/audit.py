"""The audit log of a depot: one line of JSON for each session, and for each request that was refused."""

import json
import logging
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from coalloc.errors import SinkError

__all__ = ["AuditLog"]

log = logging.getLogger(__name__)


class AuditLog:
    """An audit log in a file that is only appended to; without a file, on the standard error stream.

    :raises SinkError: if the file cannot be opened
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: IO[str] = sys.stderr if path is None else _opened(path)
        self._failed = False

    def reopen(self) -> None:
        """Open the file again, after a log rotation has renamed it; if that fails, keep the earlier file."""
        if self._path is None:
            return
        try:
            file = _opened(self._path)
        except SinkError as error:
            log.warning("%s; the earlier file stays in use", error.message)
            return
        self.close()
        self._file = file

    def write(self, **fields: object) -> None:
        """Append a line; text from clients is escaped. The first of several failures is logged."""
        line = json.dumps({"time": round(time.time(), 3), **fields})
        try:
            print(line, file=self._file, flush=True)
        except OSError as error:
            if not self._failed:
                log.warning("sessions are missing in the audit log: %s", error.strerror)
            self._failed = True
        else:
            self._failed = False

    def close(self) -> None:
        """Close the file."""
        if self._file is not sys.stderr:
            with suppress(OSError):  # lines that could not be written; a warning was logged
                self._file.close()


def _opened(path: Path) -> IO[str]:
    try:
        return path.open("a", buffering=1, encoding="utf-8")
    except OSError as error:
        raise SinkError(f"cannot open the audit log {path}: {error.strerror}", "choose another --audit file") from None
