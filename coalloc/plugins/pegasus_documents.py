"""Documents of pegasus-transfer: which of their transfers coget takes, and records of what was done. Pure.

A document is a list of transfers, directories to make and files to remove. `src_urls` of a transfer are replicas of one
file. coget takes a transfer if it can use all replicas, and pegasus-transfer does all else.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

__all__ = ["Attempt", "PegasusReplica", "PegasusTransfer", "divided", "record", "site_lines", "total_line"]

SCHEMES = ("ftp", "gsiftp", "http", "https")
"""Schemes of replicas that coget takes. pegasus-transfer has credentials of its own for others, such as S3."""
LOCAL = re.compile(r"file:(//(localhost)?)?")
VARIABLE = re.compile(r"\$\{?([a-zA-Z][a-zA-Z0-9_]+)\}?")
PROXY = "X509_USER_PROXY"
KEPT = "%:/?#[]@!$&'()*+,;=~"
"""Characters of a URL that are not encoded: pegasus-transfer's documents have blanks as they are."""


class PegasusReplica(NamedTuple):
    """A replica.

    :param priority: 1 for the preferred ones, a larger number for others; None if the document states none
    """

    url: str
    site: str
    priority: int | None


class PegasusTransfer(NamedTuple):
    """A transfer that coget does.

    :param target: path of the file
    :param target_url: its URL in the document
    :param linkage: kind of the file, for statistics
    :param generates: whether a checksum is to be computed for Pegasus
    :param verifies: whether the checksum that Pegasus knows is to be compared
    :param proxy: file of the proxy for the servers; None for the usual one
    """

    lfn: str
    replicas: tuple[PegasusReplica, ...]
    target: str
    target_url: str
    target_site: str
    linkage: str
    generates: bool
    verifies: bool
    proxy: str | None


class Attempt(NamedTuple):
    """An attempt of one transfer, or the part of one replica in it.

    :param began: seconds since 1970
    """

    source: PegasusReplica
    transfer: PegasusTransfer
    succeeded: bool
    began: float
    seconds: float
    bytes: int


def divided(
    text: str, environment: Mapping[str, str], secret: Collection[str] = ()
) -> tuple[list[PegasusTransfer], list[object] | None]:
    """Return the transfers that coget does, and the other entries of the document.

    The others are None if the document is malformed or of another form: then pegasus-transfer is to read all of it.

    :param secret: hosts and `SCHEME://HOST` for which pegasus-transfer has credentials
    """
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return [], None
    if not isinstance(entries, list):
        return [], None
    ours: list[PegasusTransfer] = []
    others: list[object] = []
    for entry in entries:
        try:
            ours.append(_transfer(entry, environment, secret))
        except (AttributeError, KeyError, TypeError, ValueError):
            others.append(entry)
    return ours, others


def _transfer(entry: Any, environment: Mapping[str, str], secret: Collection[str]) -> PegasusTransfer:
    """Return an entry as a transfer for coget.

    Versions of a checkpoint may differ between sites, so they are not replicas.

    :raises ValueError: or other errors, if it is not one
    """
    sources, targets = entry["src_urls"], entry["dest_urls"]
    if entry["type"] != "transfer" or entry.get("linkage") == "checkpoint":
        raise ValueError("not a transfer of a file")
    if not sources or any(each.get("type") is not None or each.get("checkpoint") for each in (*sources, *targets)):
        raise ValueError("an image of a container, or a checkpoint")
    target = max(targets, key=_wish)
    replicas = _replicas(sources, secret)
    return PegasusTransfer(
        lfn=_string(entry.get("lfn", "")),
        replicas=replicas,
        target=_path(target["url"], environment),
        target_url=target["url"],
        target_site=_site(target),
        linkage=_string(entry.get("linkage", "unknown")),
        generates=bool(entry.get("generate_checksum")),
        verifies=bool(entry.get("verify_checksum_remote")),
        proxy=_proxy(replicas, environment),
    )


def _path(url: str, environment: Mapping[str, str]) -> str:
    """Return the path of a local file, with the values of variables.

    >>> _path("file://$HOME/x", {"HOME": "/home/ann"}), _path("file:a/x", {}), _path("x", {})
    ('/home/ann/x', 'a/x', 'x')

    :raises ValueError: for another URL
    """
    found = LOCAL.match(url)
    path = VARIABLE.sub(lambda name: environment.get(name[1], ""), url[found.end() :] if found else url)
    if not path or path.endswith("/") or "\0" in path or (not found and ":" in url):
        raise ValueError("not a local file")
    return path


def _replicas(sources: Sequence[Mapping[str, Any]], secret: Collection[str]) -> tuple[PegasusReplica, ...]:
    """Return the replicas, the preferred ones first, each URL once."""
    ranks = sorted({_wish(each) for each in sources if "priority" in each}, reverse=True)
    found: dict[str, PegasusReplica] = {}
    for each in sorted(sources, key=_wish, reverse=True):
        scheme, host, _ = urlsplit(each["url"])[:3]
        if scheme not in SCHEMES or not host or host in secret or f"{scheme}://{host}" in secret:
            raise ValueError("a replica that pegasus-transfer fetches")
        # pegasus-transfer encodes paths of GridFTP servers anew, where %, ? and # are characters as any other
        path = each["url"].partition("://")[2].partition("/")[2]
        url = f"{scheme}://{host}/{quote(path)}" if scheme == "gsiftp" else quote(each["url"], safe=KEPT)
        rank = 1 + ranks.index(_wish(each)) if "priority" in each else None
        found.setdefault(url, PegasusReplica(url, _site(each), rank))
    return tuple(found.values())


def _wish(url: Mapping[str, Any]) -> int:
    """Return the priority of a URL: the highest one is preferred."""
    return int(url.get("priority", 0))


def _site(url: Mapping[str, Any]) -> str:
    """Return the label of the site in the form of names of variables."""
    return _string(url["site_label"]).replace("-", "_")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _proxy(replicas: Sequence[PegasusReplica], environment: Mapping[str, str]) -> str | None:
    """Return the file of the proxy for all GridFTP servers.

    :raises ValueError: if they need different ones
    """
    grid = [each for each in replicas if each.url.startswith("gsiftp:")]
    proxies = {environment.get(f"{PROXY}_{each.site}") for each in grid}
    if len(proxies) > 1:
        raise ValueError("sites with different proxies")
    return proxies.pop() if proxies else None


def record(attempts: Sequence[Attempt]) -> str:
    """Return the attempts as the YAML that Pegasus collects in PEGASUS_MULTIPART_DIR."""
    lines = ["- transfer_attempts:"]
    for each in attempts:
        fields = {
            "src_url": json.dumps(each.source.url),
            "src_label": json.dumps(each.source.site),
            "dst_url": json.dumps(each.transfer.target_url),
            "dst_label": json.dumps(each.transfer.target_site),
            "success": str(each.succeeded),
            "start": f"{each.began:.0f}",
            "duration": f"{each.seconds:.1f}",
            **({"lfn": json.dumps(each.transfer.lfn)} if each.transfer.lfn else {}),
            **({"bytes": str(each.bytes)} if each.bytes else {}),
        }
        lines += [f"  {'-' if name == 'src_url' else ' '} {name}: {value}" for name, value in fields.items()]
    return "\n".join(lines) + "\n"


def total_line(transfers: int, attempts: Sequence[Attempt], seconds: float) -> str:
    """Return the line about all transfers in pegasus-transfer's words."""
    return f"Stats: Total {transfers} transfers, {_amount(sum(each.bytes for each in attempts), seconds)}"


def site_lines(attempts: Sequence[Attempt], seconds: float) -> list[str]:
    """Return a line for each pair of sites in pegasus-transfer's words."""
    pairs: dict[str, list[int]] = {}
    for each in attempts:
        pairs.setdefault(f"{each.source.site}->{each.transfer.target_site}", []).append(each.bytes)
    return [
        f"       Between sites {pair} : {len(counts)} transfers, {_amount(sum(counts), seconds)}"
        for pair, counts in pairs.items()
    ]


def _amount(count: int, seconds: float) -> str:
    """Return an amount and its rate.

    >>> _amount(3_000_000, 2)
    '2.9 MB transferred in 2 seconds. Rate: 1.4 MB/s (11.4 Mb/s)'
    """
    rate = count / max(seconds, 0.001)
    return f"{_scaled(count)}B transferred in {seconds:.0f} seconds. Rate: {_scaled(rate)}B/s ({_scaled(rate * 8)}b/s)"


def _scaled(number: float) -> str:
    power = next((power for power in (4, 3, 2, 1) if number > 1024**power), 0)
    return f"{number / 1024**power:.1f} {' KMGT'[power].strip()}"
