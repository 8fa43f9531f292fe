"""What `coget doctor` looks at on this machine. Asks no server; every finding says what to do if it is not well."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Literal

from coalloc.progress import human
from coalloc.urls import redact

__all__ = ["Finding", "checkup"]

REQUIRED = ("click", "rich", "httpx", "fsspec", "aiohappyeyeballs", "defusedxml", "zlib-ng")
CA_FOLDERS = ("~/.globus/certificates", "/etc/grid-security/certificates")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `missing` is something that is needed for some transfers only; `wrong` must be mended."""

    thing: str
    state: Literal["ok", "missing", "wrong"]
    detail: str
    remedy: str = ""


def checkup() -> list[Finding]:
    """Look at everything that is local."""
    looks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _versions,
        _globus_url_copy,
        _proxy_certificate,
        _ca_folder,
        _environment,
        _history,
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
        yield Finding("cryptography", "missing", "needed for gsiftp:// only", "pip install 'coget[gsi]'")


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
        yield Finding("globus-url-copy", "missing", "needed for --engine globus-url-copy only", remedy)


def _proxy_certificate() -> Iterator[Finding]:
    path = Path(os.environ.get("X509_USER_PROXY") or f"/tmp/x509up_u{os.getuid()}")
    if not path.exists():
        yield Finding("proxy certificate", "missing", f"no {path}; needed for gsiftp:// only", "run grid-proxy-init")
        return
    try:
        if path.stat().st_mode & 0o077:
            yield Finding("proxy certificate", "wrong", f"{path} can be read by others", f"chmod 600 {path}")
        expiry = _expiry(path)
    except ImportError:
        yield Finding("proxy certificate", "ok", f"{path}; not looked into, for want of cryptography")
    except (OSError, ValueError) as error:
        yield Finding("proxy certificate", "wrong", f"{path} cannot be read: {error}", "run grid-proxy-init")
    else:
        if expiry < datetime.now(UTC):
            yield Finding("proxy certificate", "wrong", f"{path} expired at {expiry}", "run grid-proxy-init")
        else:
            yield Finding("proxy certificate", "ok", f"{path}, valid until {expiry}")


def _expiry(proxy: Path) -> datetime:
    """When the first certificate of the chain to expire does."""
    from cryptography.x509 import load_pem_x509_certificates

    return min(certificate.not_valid_after_utc for certificate in load_pem_x509_certificates(proxy.read_bytes()))


def _ca_folder() -> Iterator[Finding]:
    named = os.environ.get("X509_CERT_DIR")
    folders = [Path(folder).expanduser() for folder in ([named] if named else CA_FOLDERS)]
    for folder in folders:
        if folder.is_dir():
            count = sum(1 for _ in folder.glob("*.[0-9]"))
            state: Literal["ok", "wrong"] = "ok" if count else "wrong"
            yield Finding("CA folder", state, f"{folder}, {count} authorities", "" if count else _CA_REMEDY)
            return
    names = " or ".join(map(str, folders))
    yield Finding("CA folder", "wrong" if named else "missing", f"no {names}; needed for gsiftp:// only", _CA_REMEDY)


_CA_REMEDY = "install your grid's authorities there, or name their folder in X509_CERT_DIR"


def _environment() -> Iterator[Finding]:
    for name in sorted(os.environ):
        if name.startswith("COGET_"):
            yield Finding(name, "ok", redact(os.environ[name]))


def _history() -> Iterator[Finding]:
    from coalloc.history import default_path

    path = default_path()
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    if os.access(nearest, os.W_OK):
        size = f", {human.size(path.stat().st_size)}" if path.exists() else ", not yet written"
        yield Finding("history", "ok", f"{path}{size}")
    else:
        remedy = f"make {nearest} writable; until then nothing is learnt from transfers"
        yield Finding("history", "wrong", f"{path} cannot be written", remedy)


def _terminal() -> Iterator[Finding]:
    if sys.stderr.isatty():
        columns, lines = shutil.get_terminal_size()
        yield Finding("terminal", "ok", f"{os.environ.get('TERM', 'unknown')}, {columns} x {lines}")
    else:
        yield Finding("terminal", "ok", "none: progress is shown as lines")
