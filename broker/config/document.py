"""The broker's TOML file: its permissions, its sections, and secrets in files of their own."""

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from broker.errors import Invalid
from coalloc.safe_text import redact
from coalloc.util.secret_files import read_secret

__all__ = ["document"]

KNOWN = {
    "issuer": "[[issuer]]",
    "login": "[login]",
    "introspection": "[introspection]",
    "notify": "[notify]",
    "credentials": "[credentials]",
    "probing": "[probing]",
    "report": "[report]",
    "network": "[network]",
    "proxy": "[proxy]",
    "transfers": "[transfers]",
    "limits": "[limits]",
}
"""The sections that a file may have."""
SECRETS = (("login", "client_secret"), ("introspection", "client_secret"), ("notify", "secret"))
"""Keys that are secrets, with their sections; KEY_file names a file instead."""
OTHERS = stat.S_IROTH | stat.S_IWOTH


def document(path: Path) -> dict[str, Any]:
    """Read a TOML file, and the files of secrets that it names.

    :raises Invalid: naming the file, and the invalid entry, or the secrets in a file that others may read or change
    """
    try:
        with path.open("rb") as file:  # fstat by descriptor, since the mode of a link is not that of its target
            found, mode = tomllib.load(file), os.fstat(file.fileno()).st_mode
    except (OSError, ValueError) as error:
        raise Invalid(f"{path} cannot be read: {error}", "see docs/howto/broker.md for its format") from None
    if strange := found.keys() - KNOWN.keys():
        raise Invalid(f"{path}: {', '.join(sorted(strange))} is unknown", f"use {', '.join(KNOWN.values())}")
    if (secrets := ", ".join(_secrets(found))) and mode & OTHERS:
        raise Invalid(
            f"{path} contains secrets ({secrets}), but all users of this machine may read or change it",
            f"run: chmod o= {path}",
        )
    for section, key in SECRETS:
        if isinstance(entries := found.get(section), dict) and f"{key}_file" in entries:
            found[section] = _filled(path, section, key, entries)
    return found


def _secrets(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of secrets that the document itself contains."""
    for section, entries in found.items():
        for key, value in _texts(entries):
            if (section, key) in SECRETS or ("://" in value and redact(value) != value):
                yield f"[{section}] {key}"


def _texts(entry: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield all texts in a section, each with its key."""
    if isinstance(entry, str):
        yield key, entry
    elif isinstance(entry, Mapping):
        for name, value in entry.items():
            yield from _texts(value, name)
    elif isinstance(entry, list):
        for value in entry:
            yield from _texts(value, key)


def _filled(path: Path, section: str, key: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section with its secret read from the file that it names."""
    if key in entries:
        raise Invalid(f"{path}: [{section}] has {key} and {key}_file", "leave out one of them")
    try:
        file = path.parent / entries[f"{key}_file"]
        secret = read_secret(file)
    except TypeError:
        raise Invalid(f"{path}: [{section}] {key}_file is not text", f'write {key}_file = "PATH"') from None
    except OSError as error:
        why = error.strerror or str(error)
        raise Invalid(f"{path}: [{section}] {file} cannot be read: {why}", "make it readable for the broker") from None
    except ValueError as error:
        raise Invalid(f"{path}: [{section}] {file} cannot be used: {error}", "put only the secret into it") from None
    return {name: value for name, value in entries.items() if name != f"{key}_file"} | {key: secret}
