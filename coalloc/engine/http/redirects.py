"""Redirects: the place to which one may lead, and the policy of addresses there."""

from typing import TYPE_CHECKING, NamedTuple

from coalloc.credentials.origins import WebOrigin
from coalloc.engine.http.responses import Answer, origin_of, server_address
from coalloc.errors import PermissionRefused, Unsupported
from coalloc.safe_text import redact
from coalloc.util.addresses import AddressPolicy
from coalloc.util.dialer import PORTS

if TYPE_CHECKING:
    import httpx

__all__ = ["MOST", "RequestTarget", "is_redirect", "target_of"]

MOST = 10
"""Maximum number of redirects in a row."""
REDIRECTS = (301, 302, 303, 307, 308)


class RequestTarget(NamedTuple):
    """A request's target: its URL, and the policy of addresses."""

    url: "httpx.URL"
    policy: AddressPolicy

    @property
    def server(self) -> tuple[WebOrigin, AddressPolicy]:
        """The properties that all targets of one client share."""
        return origin_of(self.url), self.policy


def is_redirect(answer: Answer) -> bool:
    """Return whether a response leads to another place."""
    return answer.status_code in REDIRECTS and "location" in answer.headers


def target_of(answer: "httpx.Response", place: RequestTarget, shown: str, *, vouched: bool) -> RequestTarget:
    """Return the target of a redirect.

    :param place: the target of the redirected request
    :param shown: name of the first URL in messages
    :param vouched: whether a trusted checksum of the file is known, so that a redirect from https to http is harmless
    :raises PermissionRefused: when the redirect leads from https to http, and no checksum is known
    :raises Unsupported: when it leads to no web server
    :raises httpx.InvalidURL: when it is not a URL
    """
    old, url = place.url, place.url.join(answer.headers["location"]).copy_with(userinfo=b"")
    if url.scheme not in ("http", "https") or not url.host or (url.port is not None and url.port not in PORTS):
        raise Unsupported(f"{shown}: invalid redirect to {redact(str(url))}", "use another replica")
    if old.scheme == "https" and url.scheme == "http" and not vouched:
        raise PermissionRefused(
            f"{shown} redirects from https to {redact(str(url))}, and the file has no trusted checksum",
            "give one with --checksum, or use a Metalink fetched over https",
        )
    if origin_of(old) != origin_of(url):
        return RequestTarget(url, place.policy.named_by(server_address(answer)))
    return RequestTarget(url, place.policy)
