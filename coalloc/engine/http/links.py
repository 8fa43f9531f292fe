"""Links in HTTP responses (RFC 8288) that lead to further replicas or to Metalinks of a file (RFC 6249). No I/O."""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urljoin

from coalloc.util.counts import count

__all__ = ["WebLink", "links"]

MOST_LINKS, LONGEST_HEADER = 100, 64 * 1024
"""Maximum number of links that are read, and of characters of all together."""
WORST_PRIORITY = 999_999
ITEM = re.compile(r'\s*<([^<>"\s]*)>((?:[^,"]|"(?:[^"\\]|\\.)*+")*+)(?:,|$)')
"""A target, its parameters as one string, and the comma at its end."""
PARAMETER = re.compile(r';\s*([A-Za-z*-]+)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*+)"|([^\s;,"]+)))?')


class WebLink(NamedTuple):
    """A link of a response.

    :param url: absolute URL of its target
    :param relations: kinds of the link, in lower case
    :param media_type: type of the target, in lower case; empty if it is not stated
    :param priority: from 1, the best, to 999999; None if it is not stated
    :param location: ISO 3166 country code; None if it is not stated
    """

    url: str
    relations: frozenset[str]
    media_type: str = ""
    priority: int | None = None
    location: str | None = None


def links(headers: Mapping[str, str], base: str) -> list[WebLink]:
    """Return the links about the response itself, in their order; parts that make no sense are left out.

    :param base: URL of the response

    >>> links({"link": '</y>; rel="duplicate"; pri=2; geo=DE'}, "http://a/x")
    [WebLink(url='http://a/y', relations=frozenset({'duplicate'}), media_type='', priority=2, location='de')]
    """
    found: list[WebLink] = []
    text, at = headers.get("link", "")[:LONGEST_HEADER], 0
    while (item := ITEM.match(text, at)) and len(found) < MOST_LINKS:
        at = item.end()
        parameters: dict[str, str] = {}
        for name, quoted, plain in PARAMETER.findall(item[2]):
            parameters.setdefault(name.lower(), (re.sub(r"\\(.)", r"\1", quoted) or plain).strip())
        if "anchor" not in parameters:  # else it is about another resource
            found += _link(item[1], base, parameters)
        if at == len(text):
            break
    return found


def _link(target: str, base: str, parameters: Mapping[str, str]) -> list[WebLink]:
    try:
        url = urljoin(base, target)
    except ValueError:
        return []
    priority = count(parameters.get("pri", ""))
    location = parameters.get("geo", "").lower()
    return [
        WebLink(
            url,
            frozenset(parameters.get("rel", "").lower().split()),
            parameters.get("type", "").partition(";")[0].strip().lower(),
            priority if priority is not None and 1 <= priority <= WORST_PRIORITY else None,
            location if re.fullmatch("[a-z]{2}", location) else None,
        )
    ]
