"""Secrets in files or environment variables, as provided by Docker, Kubernetes or systemd's LoadCredential."""

import os
from pathlib import Path

from coalloc.errors import UsageError

__all__ = ["read_secret", "secret_variable"]


def read_secret(path: Path) -> str:
    """Return a file's text without newlines at its end.

    :raises OSError: if it cannot be read
    :raises ValueError: if it is empty, or not UTF-8 text
    """
    try:
        secret = path.read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError:  # its message would show some of the secret
        raise ValueError("it is not UTF-8 text") from None
    if not secret:
        raise ValueError("it is empty")
    return secret


def secret_variable(name: str) -> str | None:
    """Return the secret in the variable `name`, or in the file that `name`_FILE names; None if both are unset.

    :raises UsageError: if both are set, or the file cannot be used
    """
    secret, file = os.environ.get(name), os.environ.get(f"{name}_FILE")
    if not file:
        return secret or None
    if secret:
        raise UsageError(f"{name} and {name}_FILE are both set", f"unset one of them, or set {name} to nothing")
    try:
        return read_secret(Path(file))
    except OSError as error:
        why = error.strerror or str(error)
    except ValueError as error:
        why = str(error)
    raise UsageError(f"cannot use the file {file} of {name}_FILE: {why}", "give a file that contains only the secret")
