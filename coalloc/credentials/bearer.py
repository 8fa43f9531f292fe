"""Discovery of the user's bearer token, as WLCG defines it: https://zenodo.org/records/3937438.

The token is read for each request, so that a new one is used as soon as it is there.
"""

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from coalloc.credentials.private_files import UnusableFile, read_private

__all__ = ["TOKEN", "BearerToken", "discover", "token_in"]

TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""Syntax of a bearer token (RFC 6750, section 2.1)."""

SHARED = "/tmp"
"""Directory where tokens are if XDG_RUNTIME_DIR has none."""


@dataclass(frozen=True)
class BearerToken:
    """A token, or the reason why there is none.

    :param what: description of its place, for people
    :param token: None if it cannot be used
    :param problem: the reason for that
    :param renewable: whether it is in a file, where a new one may take its place
    """

    what: str
    token: str | None = field(default=None, repr=False)
    problem: str = ""
    renewable: bool = False


def discover() -> BearerToken | None:
    """Return the user's token; None if there is none."""
    if value := os.environ.get("BEARER_TOKEN", "").strip():
        return replace(_checked("the token of BEARER_TOKEN", value), renewable=False)
    if named := os.environ.get("BEARER_TOKEN_FILE"):
        return token_in(Path(named), f"the token in {named} (BEARER_TOKEN_FILE)")
    name = f"bt_u{os.geteuid()}"
    for folder in filter(None, (os.environ.get("XDG_RUNTIME_DIR"), SHARED)):
        path = Path(folder, name)
        try:
            return _checked(f"the token in {path}", read_private(path, named=False))
        except FileNotFoundError:
            continue
        except UnusableFile as error:
            return BearerToken(f"the token in {path}", problem=str(error))
        except OSError as error:
            return BearerToken(f"the token in {path}", problem=f"it cannot be read: {error.strerror}")
    return None


def token_in(path: Path, what: str) -> BearerToken:
    """Return the token in a file that the user named."""
    try:
        return _checked(what, read_private(path, named=True))
    except UnusableFile as error:
        return BearerToken(what, problem=str(error))
    except OSError as error:
        return BearerToken(what, problem=f"it cannot be read: {error.strerror}")


def _checked(what: str, value: str) -> BearerToken:
    if TOKEN.fullmatch(value):
        return BearerToken(what, value, renewable=True)
    return BearerToken(what, problem="it is empty" if not value else "it has characters that no token has")
