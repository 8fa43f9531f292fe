"""Secrets in files, as Docker, Kubernetes and systemd's LoadCredential provide them."""

import os
from pathlib import Path

from coalloc.errors import UsageError

__all__ = ["read_secret", "secret_variable"]


def read_secret(path: Path) -> str:
    """Return a file's text without the newlines at its end.

    :raises OSError: when it cannot be read
    :raises ValueError: when it is empty, or not text
    """
    try:
        secret = path.read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError:  # its message would show some of the secret
        raise ValueError("it is not UTF-8 text") from None
    if not secret:
        raise ValueError("it is empty")
    return secret


def secret_variable(name: str) -> str | None:
    """Return the secret in an environment variable, or in the file that NAME_FILE names; None if neither is set.

    :raises UsageError: when both are set, or the file cannot be read
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
    raise UsageError(
        f"the file {file} of {name}_FILE cannot be used: {why}", "name a file that contains only the secret"
    )
