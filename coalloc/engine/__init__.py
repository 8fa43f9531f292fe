"""Engines: how bytes of a replica are had. `open_source` chooses one by the URL's scheme."""

from typing import Literal
from urllib.parse import urlsplit

from coalloc.engine.base import EngineOptions, Source
from coalloc.engine.parallel import Parallel
from coalloc.errors import UsageError
from coalloc.urls import redact

__all__ = ["Engine", "open_source"]

Engine = Literal["auto", "gridftp", "globus-url-copy"]

OURS = ("ftp", "gsiftp")
THEIRS = ("ftp", "gsiftp", "sshftp")
WEB = ("http", "https")


def open_source(url: str, engine: Engine, options: EngineOptions) -> Source:
    """The source for a URL, not connected yet. Engines are imported when they are first needed.

    :param engine: what speaks GridFTP; "auto" takes our own client where it can
    :raises UsageError: if the URL makes no sense, or the engine does not speak its scheme
    """
    scheme = _scheme(url)
    if engine == "globus-url-copy":
        if scheme not in THEIRS:
            raise UsageError(f"{redact(url)} is nothing for globus-url-copy", f"it takes {', '.join(THEIRS)} URLs")
        return _url_copy(url, options)
    if scheme in OURS:
        return _gridftp(url, options)
    if engine == "gridftp":
        raise UsageError(f"{redact(url)} is nothing for a GridFTP client", "leave --engine out, or use an ftp:// URL")
    if scheme in THEIRS:
        return _url_copy(url, options)
    return _web(url, options) if scheme in WEB else _bridge(url, options)


def _scheme(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises
    except ValueError:
        raise UsageError(f"{redact(url)}: the host or port makes no sense", "write SCHEME://HOST[:PORT]/PATH") from None
    if parts.scheme in (*THEIRS, *WEB) and not parts.hostname:
        raise UsageError(f"{redact(url)} names no host", f"write {parts.scheme}://HOST/PATH")
    return parts.scheme


def _gridftp(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.gridftp import GridFTPSource

    if options.streams > 1:
        return GridFTPSource(url, options)  # has them in one session
    return Parallel(lambda: GridFTPSource(url, options))


def _url_copy(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.url_copy import URLCopySource

    return Parallel(lambda: URLCopySource(url, options), options.streams)


def _web(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.http import HTTPSource

    return Parallel(lambda: HTTPSource(url, options), options.streams)


def _bridge(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.bridge import BridgeSource

    return Parallel(lambda: BridgeSource(url, options), options.streams)
