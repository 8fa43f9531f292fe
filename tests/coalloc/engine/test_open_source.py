"""The engine for each URL."""

import pytest

from coalloc.engine import open_source
from coalloc.engine.fsspec_source import BridgeSource
from coalloc.engine.globus_url_copy import URLCopySource
from coalloc.engine.gridftp import GridFTPSource
from coalloc.engine.http import HTTPSource
from coalloc.engine.s3 import S3Source
from coalloc.engine.sessions.parallel import Parallel
from coalloc.errors import UsageError
from tests.support.fetching import options


@pytest.mark.parametrize(
    ("url", "engine", "streams", "kind"),
    [
        ("ftp://host/x", "auto", 1, GridFTPSource),
        ("FTP://host/x", "gridftp", 4, GridFTPSource),
        ("gsiftp://host/x", "auto", 1, GridFTPSource),
        ("gsiftp://host/x", "globus-url-copy", 1, URLCopySource),
        ("sshftp://host/x", "auto", 1, URLCopySource),
        ("http://host/x", "auto", 1, HTTPSource),
        ("https://host/x", "auto", 2, HTTPSource),
        ("file:///x", "auto", 1, BridgeSource),
        ("s3://bucket/x", "auto", 1, S3Source),
    ],
)
def test_the_scheme_decides(url, engine, streams, kind):
    source = open_source(url, engine, options(streams=streams))
    assert source.url == url
    assert isinstance(source, Parallel)
    assert type(source._make(0)) is kind


@pytest.mark.parametrize(
    ("url", "engine"),
    [
        ("http://me:secret@host/x", "gridftp"),
        ("sshftp://me:secret@host/x", "gridftp"),
        ("http://me:secret@host/x", "globus-url-copy"),
        ("http:///x", "auto"),
        ("https://me:secret@/x", "auto"),
        ("ftp:///x", "auto"),
        ("ftp://host", "auto"),
        ("ftp://me:secret@host", "globus-url-copy"),
        ("sshftp:///x", "auto"),
        ("http://me:secret@host:many/x", "auto"),
        ("http://me:secret@[host/x", "auto"),
        ("file://host/x", "auto"),
    ],
)
def test_invalid_urls_and_engines_are_refused_without_secrets(url, engine):
    with pytest.raises(UsageError) as caught:
        open_source(url, engine, options())
    assert caught.value.remedy
    assert "secret" not in caught.value.message
