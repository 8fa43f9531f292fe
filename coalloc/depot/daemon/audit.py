"""The audit log of a depot: one line of JSON for each session, and for each request that was refused."""

import json
import sys
import time
from pathlib import Path
from typing import IO

from coalloc.errors import SinkError

__all__ = ["AuditLog"]


class AuditLog:
    """An audit log in a file that is only appended to; on the standard error stream without file.

    :raises SinkError: if the file cannot be opened
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: IO[str] = sys.stderr
        self.reopen()

    def reopen(self) -> None:
        """Open the file again, after a log rotation has renamed it."""
        if self._path is None:
            return
        try:
            file = self._path.open("a", buffering=1, encoding="utf-8")
        except OSError as error:
            raise SinkError(
                f"the audit log {self._path} cannot be opened: {error.strerror}", "choose another --audit file"
            ) from None
        if self._file is not sys.stderr:
            self._file.close()
        self._file = file

    def write(self, **fields: object) -> None:
        """Append a line; text from clients is escaped."""
        line = json.dumps({"time": round(time.time(), 3), **fields})
        print(line, file=self._file, flush=True)

    def close(self) -> None:
        """Close the file."""
        if self._file is not sys.stderr:
            self._file.close()
