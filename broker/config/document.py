"""The reader of the broker's TOML file. It checks permissions and sections, and reads secrets from separate files."""

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
"""Secrets, as section and key; the key `KEY_file` may name a file with the secret instead."""
OTHERS = stat.S_IROTH | stat.S_IWOTH


def document(path: Path) -> dict[str, Any]:
    """Read a TOML file, and the files of secrets that it names.

    :raises Invalid: when the file cannot be read, has an invalid entry, or has secrets that others may read or change
    """
    try:
        with path.open("rb") as file:  # fstat: the mode of exactly the file that was read
            found, mode = tomllib.load(file), os.fstat(file.fileno()).st_mode
    except (OSError, ValueError) as error:
        raise Invalid(f"cannot read {path}: {error}", "write it as docs/howto/broker.md shows") from None
    if strange := found.keys() - KNOWN.keys():
        raise Invalid(f"{path}: {', '.join(sorted(strange))} is unknown", f"use {', '.join(KNOWN.values())}")
    for section, entries in found.items():
        _check_tables(path, KNOWN[section], entries)
    if (secrets := ", ".join(_secrets(found))) and mode & OTHERS:
        raise Invalid(
            f"{path} contains secrets ({secrets}), but all users of this machine may read or change it",
            f"run: chmod o= {path}",
        )
    for section, key in SECRETS:
        if isinstance(entries := found.get(section), dict) and f"{key}_file" in entries:
            found[section] = _filled(path, section, key, entries)
    return found


def _check_tables(path: Path, header: str, entries: object) -> None:
    """Check that a section is a table, or a list of tables if its header has double brackets.

    :raises Invalid: when it is something else
    """
    several = header.startswith("[[")
    tables = entries if several else [entries]
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise Invalid(
            f"{path}: {header} is not {'a list of tables' if several else 'a table'}",
            f"write {header} on a line of its own, and below it the settings",
        )


def _secrets(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the section and key of each secret in the document itself, including passwords in URLs."""
    for section, entries in found.items():
        for key, value in _texts(entries):
            if (section, key) in SECRETS or ("://" in value and redact(value) != value):
                yield f"[{section}] {key}"


def _texts(entry: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the key and value of each string in a section, however deep."""
    if isinstance(entry, str):
        yield key, entry
    elif isinstance(entry, Mapping):
        for name, value in entry.items():
            yield from _texts(value, name)
    elif isinstance(entry, list):
        for value in entry:
            yield from _texts(value, key)


def _filled(path: Path, section: str, key: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section in which the secret from the file replaces `KEY_file`.

    :raises Invalid: when both keys are given, or the file cannot be read
    """
    if key in entries:
        raise Invalid(f"{path}: [{section}] has {key} and {key}_file", "leave out one of them")
    try:
        file = path.parent / entries[f"{key}_file"]
        secret = read_secret(file)
    except TypeError:
        raise Invalid(f"{path}: [{section}] {key}_file is not a string", f'write {key}_file = "PATH"') from None
    except OSError as error:
        why = error.strerror or str(error)
        raise Invalid(f"{path}: [{section}] cannot read {file}: {why}", "make it readable for the broker") from None
    except ValueError as error:
        raise Invalid(f"{path}: [{section}] cannot use {file}: {error}", "put only the secret into it") from None
    return {name: value for name, value in entries.items() if name != f"{key}_file"} | {key: secret}
