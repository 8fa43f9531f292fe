"""Checksums that Google Cloud Storage and Azure state about an object, which obstore does not show: one more request.

`x-goog-hash` has crc32c and md5, as for other web servers; `Content-MD5` of Azure is the md5 of the whole blob. If the
credentials do not allow such a request, no checksum is known.
"""

from collections.abc import Iterable, Mapping, Sequence

from coalloc.engine.base import EngineOptions
from coalloc.engine.clouds import CloudObjects, HeadRequest
from coalloc.engine.http.digests import StatedDigests, stated_digests
from coalloc.engine.http.exchange import HTTPExchange
from coalloc.errors import SourceError

__all__ = ["cloud_checksums"]


class _CloudSigner:
    """An author of fixed headers. Implements `coalloc.engine.http.exchange.Signer`."""

    def __init__(self, request: HeadRequest) -> None:
        self._headers = request.headers
        self.names: Sequence[str] = [name.lower() for name in request.headers]
        self.secrets: Iterable[str] = request.secrets

    def sign(self, method: str) -> Mapping[str, str]:
        return self._headers


async def cloud_checksums(cloud: CloudObjects, request: HeadRequest, options: EngineOptions) -> StatedDigests:
    """Return the checksums of the version that `cloud.info` saw; none if the service does not answer."""
    server = HTTPExchange(request.url, options, lambda _: None, signer=_CloudSigner(request), shown=request.shown)
    try:
        async with server.timely(2 * options.connect_seconds), server.answer("HEAD", {}) as answer:
            if answer.status_code != 200:
                return StatedDigests()
            stated = _stated(answer.headers)
            if not cloud.is_version(answer.headers.get("etag"), answer.headers.get("content-length")):
                return StatedDigests((), tuple(f"{each.algorithm} (of another version)" for each in stated.usable))
            return stated._replace(unused=tuple(map(server.hidden, stated.unused)))
    except SourceError:
        return StatedDigests()
    finally:
        await server.close()


def _stated(headers: Mapping[str, str]) -> StatedDigests:
    """Return the checksums in the headers of an answer to HEAD.

    >>> _stated({"content-md5": "1B2M2Y8AsgTpgAmY7PhCfg=="}).usable
    (Checksum(algorithm='md5', value='d41d8cd98f00b204e9800998ecf8427e'),)
    """
    azure = {"digest": f"md5={headers['content-md5']}"} if "content-md5" in headers else {}
    return stated_digests({**headers, **azure}, whole=True, bodiless=True)
