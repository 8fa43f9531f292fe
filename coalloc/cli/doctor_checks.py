"""The local checks of `coget doctor`. They contact no server; every finding that is not ok has a remedy."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Literal

from coalloc.errors import PermissionRefused, UsageError
from coalloc.safe_text import redact, redacted_text

__all__ = ["Finding", "checkup"]

MOST_NAMES = 3
REQUIRED = ("click", "rich", "httpx", "fsspec", "aiohappyeyeballs", "zlib-ng")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `limited`: some transfers are unavailable or slow; `wrong`: a repair is needed."""

    thing: str
    state: Literal["ok", "limited", "wrong"]
    detail: str
    remedy: str = ""


def checkup() -> list[Finding]:
    """Run all local checks."""
    looks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _versions,
        _compiler,
        _globus_url_copy,
        _credential,
        _authorities,
        _environment,
        _history,
        _connections,
        _terminal,
    )
    return [finding for look in looks for finding in look()]


def _versions() -> Iterator[Finding]:
    yield Finding("coget", "ok", f"{_version('coget')} on Python {'.'.join(map(str, sys.version_info[:3]))}")
    found = {name: _version(name) for name in REQUIRED}
    absent = [name for name, version in found.items() if version is None]
    if absent:
        yield Finding("libraries", "wrong", f"missing: {', '.join(absent)}", "install coget again with pip")
    else:
        yield Finding("libraries", "ok", ", ".join(f"{name} {version}" for name, version in found.items()))
    version = _version("cryptography")
    if version:
        yield Finding("cryptography", "ok", version)
    else:
        yield Finding(
            "cryptography", "limited", "not installed; some gsiftp:// servers need it", "pip install 'coget[gsi]'"
        )


def _compiler() -> Iterator[Finding]:
    from predictors.compiled import REMEDY, available

    if available():
        yield Finding("numba", "ok", f"{_version('numba')}")
    else:
        detail = "not installed; forecasts from thousands of transfers take about four times as long"
        yield Finding("numba", "limited", detail, REMEDY)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _globus_url_copy() -> Iterator[Finding]:
    found = shutil.which("globus-url-copy")
    if found:
        yield Finding("globus-url-copy", "ok", found)
    else:
        remedy = "install globus-gass-copy-progs (Debian, Fedora) if you want it"
        yield Finding("globus-url-copy", "limited", "not installed; needed for --engine globus-url-copy only", remedy)


def _credential() -> Iterator[Finding]:
    from coalloc.engine.gridftp.gsi.credential import NEW_PROXY, find_credential

    try:
        path = find_credential().certificate
        expiry = _expiry(path)
    except PermissionRefused as error:
        yield Finding("certificate", "limited", f"{error.message}; needed for gsiftp:// only", error.remedy)
    except (OSError, ValueError) as error:
        yield Finding("certificate", "limited", f"{path} contains no certificate: {error}", NEW_PROXY)
    except ImportError:
        yield Finding("certificate", "ok", f"{path}; not checked, because cryptography is not installed")
    else:
        valid = expiry > datetime.now(UTC)
        detail = f"{path}, valid until {expiry:%Y-%m-%d %H:%M} UTC" if valid else f"{path} expired at {expiry}"
        yield Finding("certificate", "ok" if valid else "limited", detail, "" if valid else NEW_PROXY)


def _expiry(chain: Path) -> datetime:
    """Return the earliest expiry among the certificates of a chain."""
    from cryptography.x509 import load_pem_x509_certificates

    return min(certificate.not_valid_after_utc for certificate in load_pem_x509_certificates(chain.read_bytes()))


def _authorities() -> Iterator[Finding]:
    from coalloc.engine.gridftp.gsi.credential import find_authorities

    try:
        folder = find_authorities()
    except PermissionRefused as error:
        yield Finding("authorities", "limited", f"{error.message}; needed for gsiftp:// only", error.remedy)
        return
    from coalloc.engine.gridftp.gsi.trust import FETCH, INSTALL, survey

    count = sum(1 for _ in folder.glob("*.[0-9]"))
    remedy = "" if count else "install your grid's CA certificates there, each as HASH.0"
    yield Finding("authorities", "ok" if count else "limited", f"{folder}, {count} CA certificates", remedy)
    found = survey(folder)
    if not found.number:
        return
    for thing, lacks, names, remedy in (
        ("revocation lists", "no list that can be read", found.without_list, FETCH),
        ("revocation lists", "a list that is not valid now", found.expired_list, FETCH),
        ("signing policies", "no policy", found.without_policy, INSTALL),
    ):
        if names:
            yield Finding(thing, "limited", f"{len(names)} of {found.number} CAs have {lacks}: {_some(names)}", remedy)
    if not (found.without_list or found.expired_list):
        yield Finding("revocation lists", "ok", "every CA has one that is valid")
    if not found.without_policy:
        yield Finding("signing policies", "ok", "every CA has one")


def _some(names: Sequence[str]) -> str:
    """Return the first few of many names."""
    return ", ".join([*names[:MOST_NAMES], *(["..."] if len(names) > MOST_NAMES else [])])


def _environment() -> Iterator[Finding]:
    for name in sorted(os.environ):
        if name.startswith("COGET_"):
            yield Finding(name, "ok", "set" if name.endswith("_TOKEN") else redacted_text(redact(os.environ[name])))


def _history() -> Iterator[Finding]:
    from coalloc.history.database import default_path

    path = default_path()
    if path is None:
        yield Finding("history", "ok", "off, as set by COGET_HISTORY")
        return
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    if os.access(nearest, os.W_OK) and nearest.is_dir() == (nearest != path):
        yield Finding("history", "ok", str(path) if path.exists() else f"{path}, not yet written")
    else:
        remedy = f"make {nearest} writable; until then coget cannot learn from transfers"
        yield Finding("history", "wrong", f"{path} is not writable", remedy)


def _connections() -> Iterator[Finding]:
    from coalloc.engine.limits.server_slots import VARIABLE, Slots

    try:
        slots = Slots.from_environment()
    except UsageError as error:
        yield Finding("connections", "wrong", error.message, error.remedy)
        return
    if slots is None:
        yield Finding("connections", "ok", f"no limit, as set by {VARIABLE}")
    elif slots.usable:
        yield Finding("connections", "ok", f"at most {slots.most} to a server, counted in {slots.folder}")
    else:
        remedy = f"remove {slots.directory}, or allow access to you only; until then connections are not counted"
        yield Finding("connections", "limited", f"{slots.directory} is unusable", remedy)


def _terminal() -> Iterator[Finding]:
    if sys.stderr.isatty():
        columns, lines = shutil.get_terminal_size()
        yield Finding("terminal", "ok", f"{os.environ.get('TERM', 'unknown')}, {columns} x {lines}")
    else:
        yield Finding("terminal", "ok", "none: progress is shown as lines")
