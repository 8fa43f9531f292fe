"""Engines, which fetch the bytes of a replica. `open_source` chooses an engine by the URL's scheme."""

from dataclasses import replace
from typing import Literal
from urllib.parse import urlsplit

from coalloc.engine.base import EngineOptions, Source
from coalloc.engine.sessions.parallel import Parallel
from coalloc.errors import UsageError
from coalloc.safe_text import redact

__all__ = ["Engine", "open_source", "speaks"]

Engine = Literal["auto", "gridftp", "globus-url-copy"]

OURS = ("ftp", "gsiftp")
THEIRS = ("ftp", "gsiftp", "sshftp")
WEB = ("http", "https")
CHOSEN = {"gridftp": OURS, "globus-url-copy": THEIRS}
"""Supported schemes of each engine that the user can choose."""


def speaks(engine: Engine, url: str) -> bool:
    """Return whether this engine supports the URL's scheme; "auto" supports all."""
    return engine == "auto" or url.partition("://")[0].lower() in CHOSEN[engine]


def open_source(url: str, engine: Engine, options: EngineOptions) -> Source:
    """Return the source for a URL, not connected yet. Engines are imported when they are first needed.

    :param engine: the GridFTP client to use; "auto" takes coget's own if it supports the scheme
    :raises UsageError: if the URL is malformed, or the engine does not support its scheme
    """
    scheme = _scheme(url)
    further = tuple(dialer for dialer in options.further if dialer.serves(urlsplit(url).hostname or ""))
    options = replace(options, further=further, streams=max(options.streams, 1 + len(further)))
    if options.slots:
        options = replace(options, streams=min(options.streams, options.slots.most))
    if not speaks(engine, url):
        schemes = " and ".join(f"{scheme}://" for scheme in CHOSEN[engine])
        raise UsageError(f"the {engine} engine does not support {redact(url)}", f"leave it out, or name {schemes} URLs")
    if scheme not in THEIRS:
        return _web(url, options) if scheme in WEB else _bridge(url, options)
    return _gridftp(url, options) if scheme in OURS and engine != "globus-url-copy" else _url_copy(url, options)


def _scheme(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises
    except ValueError:
        raise UsageError(f"{redact(url)}: the host or port is invalid", "write SCHEME://HOST[:PORT]/PATH") from None
    if parts.scheme in (*THEIRS, *WEB) and not parts.hostname:
        raise UsageError(f"{redact(url)} names no host", f"write {parts.scheme}://HOST/PATH")
    return parts.scheme


def _gridftp(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.gridftp import GridFTPFindings, GridFTPSource

    known, routes = GridFTPFindings(), 1 + len(options.further)
    return Parallel(lambda number: GridFTPSource(url, options.over(number), known, number), options.streams, routes)


def _url_copy(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.globus_url_copy import URLCopySource

    return Parallel(lambda _: URLCopySource(url, options), options.streams)


def _web(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.http import HTTPFindings, HTTPSource

    known, routes = HTTPFindings(), 1 + len(options.further)
    return Parallel(lambda number: HTTPSource(url, options.over(number), known, number), options.streams, routes)


def _bridge(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.fsspec_source import BridgeSource

    return Parallel(lambda _: BridgeSource(url, options), options.streams)
