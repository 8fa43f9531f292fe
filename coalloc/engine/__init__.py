"""Engines, which fetch the bytes of a replica. `open_source` chooses an engine by the URL's scheme."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from coalloc.engine.base import Admission, EngineOptions, Source
from coalloc.engine.sessions.parallel import Parallel
from coalloc.errors import NothingToFetchFrom, UsageError
from coalloc.model.replicas import ReplicaSet
from coalloc.model.routes import DIRECTLY
from coalloc.safe_text import redact
from coalloc.util.dialer import Dialer

if TYPE_CHECKING:
    from coalloc.engine.http.digests import StatedDigests
    from coalloc.engine.lister import Lister

__all__ = ["Engine", "open_lister", "open_source", "open_sources", "speaks"]

Engine = Literal["auto", "gridftp", "globus-url-copy"]

# Keep httpx from importing its command-line interface: that takes longer than a round trip to a distant server.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

OURS = ("ftp", "gsiftp", "ftps", "ftpes")
THEIRS = ("ftp", "gsiftp", "sshftp")
WEB = ("dav", "davs", "http", "https")
S3 = "s3"
CHOSEN = {"gridftp": OURS, "globus-url-copy": THEIRS}
"""Supported schemes of each engine that the user can choose."""


def speaks(engine: Engine, url: str) -> bool:
    """Return whether this engine supports the URL's scheme; "auto" supports all."""
    return engine == "auto" or url.partition("://")[0].lower() in CHOSEN[engine]


def open_sources(
    file: ReplicaSet, engine: Engine, options: EngineOptions, limits: Mapping[str, Admission] | None = None
) -> list[Source]:
    """Return a source for each replica, not connected yet.

    :param limits: the rate limits of replicas, by URL; others have the one of `options`
    :raises NothingToFetchFrom: if all replicas were left out
    :raises UsageError: as `open_source`
    """
    if not file.replicas:
        why = [f"{url}: {reason}" for url, reason in file.left_out]
        raise NothingToFetchFrom(f"{file.name} has no replica that may be used:", "give a replica's URL yourself", why)
    known = limits or {}
    return [
        open_source(
            replica.url,
            engine,
            replace(
                options.named(replica.origin),
                admission=known.get(replica.url, options.admission),
                vouched=file.vouched,
                stated=replica.stated,
            ),
        )
        for replica in file.replicas
    ]


def open_source(url: str, engine: Engine, options: EngineOptions) -> Source:
    """Return the source for a URL, not connected yet. Engines are imported when they are first needed.

    :param engine: the GridFTP client to use; "auto" takes coget's own if it supports the scheme
    :raises UsageError: if the URL is malformed, or the engine does not support its scheme
    """
    scheme = _scheme(url)
    host = urlsplit(url).hostname or ""
    if options.further:
        options = options.to(host)
        options = replace(options, streams=max(options.streams, len(options.dialers)))
    if options.slots:
        options = replace(options, streams=min(options.streams, options.slots.most))
    if not speaks(engine, url):
        schemes = " and ".join(f"{scheme}://" for scheme in CHOSEN[engine])
        raise UsageError(f"the {engine} engine does not support {redact(url)}", f"leave it out, or name {schemes} URLs")
    if scheme == S3:
        return _s3(url, options)
    if scheme not in (*OURS, *THEIRS):
        return _web(url, options) if scheme in WEB else _bridge(url, options)
    return _gridftp(url, options) if scheme in OURS and engine != "globus-url-copy" else _url_copy(url, options)


def open_lister(url: str, options: EngineOptions) -> "Lister":
    """Return the lister for a URL's server, not connected yet.

    :raises UsageError: if directories cannot be listed with the URL's scheme
    """
    match urlsplit(url).scheme:
        case "ftp" | "gsiftp":
            from coalloc.engine.gridftp.lister import GridFTPLister

            return GridFTPLister(url, options)
        case "http" | "https":
            from coalloc.engine.http.lister import HTTPLister

            return HTTPLister(options)
        case "dav" | "davs":
            from coalloc.engine.http.webdav import WebDAVLister

            return WebDAVLister(options)
        case "s3":
            from coalloc.engine.s3.listing import S3Lister

            return S3Lister(options)
        case "az" | "gs":
            from coalloc.engine.cloud_listing import CloudLister

            return CloudLister(options)
    raise UsageError(
        f"directories cannot be listed at {redact(url)}",
        "name an http(s)://, dav(s)://, s3://, gs://, az://, ftp:// or gsiftp:// URL",
    )


def _scheme(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises
    except ValueError:
        raise UsageError(f"{redact(url)}: invalid host or port", "write SCHEME://HOST[:PORT]/PATH") from None
    if parts.scheme in (*OURS, *THEIRS, *WEB) and not parts.hostname:
        raise UsageError(f"{redact(url)} names no host", f"write {parts.scheme}://HOST/PATH")
    return parts.scheme


def _gridftp(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.gridftp import GridFTPFindings, GridFTPSource

    known = GridFTPFindings()
    return Parallel(
        lambda number: GridFTPSource(url, options.over(number), known, number), options.streams, _dialers(url, options)
    )


def _dialers(url: str, options: EngineOptions) -> Sequence[Dialer]:
    """Return the dialers over all routes to the server; none if only direct connections are possible."""
    direct = not options.further and options.dialer.route(urlsplit(url).hostname or "") == DIRECTLY
    return () if direct else options.dialers


def _url_copy(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.globus_url_copy import URLCopySource

    return Parallel(lambda _: URLCopySource(url, options), options.streams)


def _web(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.http import HTTPFindings, HTTPSource

    known = HTTPFindings()
    return Parallel(
        lambda number: HTTPSource(url, options.over(number), known, number), options.streams, _dialers(url, options)
    )


def _s3(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.s3 import S3Findings, S3Source

    known = S3Findings()
    return Parallel(
        lambda number: S3Source(url, options.over(number), known, number), options.streams, _dialers(url, options)
    )


def _bridge(url: str, options: EngineOptions) -> Source:
    from coalloc.engine.fsspec_source import BridgeSource

    stated: dict[str | None, StatedDigests] = {}
    return Parallel(lambda _: BridgeSource(url, options, stated), options.streams)
