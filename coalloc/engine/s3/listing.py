"""Keys of a bucket that begin with a prefix (`ListObjectsV2`), as the files below a directory.

    <ListBucketResult><Contents><Key>run1/x.root</Key><Size>12</Size></Contents>
      <IsTruncated>true</IsTruncated><NextContinuationToken>abc</NextContinuationToken></ListBucketResult>

The answers are not to be trusted: DTDs and entities are refused, sizes are limited, and a key counts only if it begins
with the prefix.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Never
from urllib.parse import quote, unquote_plus

from coalloc.engine.base import EngineOptions
from coalloc.engine.http.exchange import HTTPExchange
from coalloc.engine.lister import Lister
from coalloc.engine.listing_xml import ListingParser
from coalloc.engine.s3.account import S3Account
from coalloc.engine.s3.answers import LONGEST_ERROR, error_code, refusal, region
from coalloc.engine.s3.objects import is_region, parse_prefix
from coalloc.errors import AddressRefused, LimitExceeded, NoSuchFile, Unsupported
from coalloc.model.listings import Entry
from coalloc.safe_text import redact
from coalloc.util.counts import count
from coalloc.util.listing_limits import LIST_SECONDS

__all__ = ["KeyPage", "S3Lister"]

SECONDS = 60.0
"""Maximum seconds in which no byte of an answer arrives."""
LONGEST, LONGEST_TEXT = 16 << 20, 16 * 1024
"""Maximum bytes of an answer, which has 1,000 keys, and characters of one text in it."""
MOST_EMPTY = 1000
"""Maximum number of answers in a row without a new key: services may send such ones where objects were deleted."""
ROOT = "ListBucketResult"
WANTED = frozenset({"Key", "Size", "IsTruncated", "NextContinuationToken", "EncodingType"})


class KeyPage(ListingParser):
    """The parser of one answer.

    >>> page = KeyPage("s3://runs/")
    >>> page.feed(b"<ListBucketResult><Contents><Key>a</Key><Size>3</Size></Contents></ListBucketResult>")
    >>> page.close()
    >>> page.keys, page.token
    ([('a', 3)], None)

    :param where: the directory, for messages
    :ivar keys: keys and sizes; None for a size that is not a number
    :ivar token: names the next answer; None if this is the last one
    """

    def __init__(self, where: str) -> None:
        super().__init__(LONGEST)
        self._where = where
        self._open: list[str] = []
        self._fields: dict[str, str] = {}
        self._text: list[str] = []
        self._length = 0
        self._found: list[tuple[str, int | None]] = []
        self.keys: list[tuple[str, int | None]] = []
        self.token: str | None = None

    def feed(self, data: bytes) -> None:
        """Parse a part of the answer.

        :raises Unsupported: if it is not such an answer
        :raises LimitExceeded: if it is too long
        """
        self._parse(data)

    def close(self) -> None:
        """End the answer, after which `keys` and `token` are known. :raises Unsupported: if it ended too early"""
        self._finish()
        encoded = self._fields.get("EncodingType") == "url"
        self.keys = [
            (unquote_plus(key, errors="surrogateescape") if encoded else key, size) for key, size in self._found
        ]
        if self._fields.get("IsTruncated", "").strip().lower() == "true":
            self.token = self._fields.get("NextContinuationToken") or self._refuse("it does not name its continuation")

    def _start(self, tag: str, _attributes: list[str]) -> None:
        name = tag.rpartition(":")[2]
        if not self._open and name != ROOT:
            self._refuse(f"it is a <{name[:100]}>")
        if len(self._open) > 8:
            self._refuse("its elements are nested too deep")
        if name == "Contents":
            self._fields.pop("Key", None)
            self._fields.pop("Size", None)
        self._open.append(name)
        self._text, self._length = [], 0

    def _take_text(self, text: str) -> None:
        if self._open and self._open[-1] in WANTED:
            self._length += len(text)
            if self._length > LONGEST_TEXT:
                self._refuse(f"it has a text of more than {LONGEST_TEXT} characters")
            self._text.append(text)

    def _end(self, _tag: str) -> None:
        name, text = self._open.pop(), "".join(self._text)
        if name == "Contents":
            if "Key" not in self._fields:
                self._refuse("it has a <Contents> without <Key>")
            self._found.append((self._fields.pop("Key"), count(self._fields.pop("Size", ""))))
        elif name in WANTED:
            self._fields[name] = text
        self._text = []

    def _refuse(self, why: str) -> Never:
        raise Unsupported(f"{self._where}: the listing cannot be read: {why}", "give the URLs of objects")

    def _too_long(self, what: str) -> LimitExceeded:
        return LimitExceeded(f"{self._where}: the listing has an answer of more than {what}", "list less")


class _ListingSigner:
    """An author of the headers for the requests of a listing. Implements `coalloc.engine.http.exchange.Signer`."""

    def __init__(self, account: S3Account, url: str) -> None:
        self._account = account
        self._url = url
        self.names = account.names
        self.secrets = account.secrets

    def sign(self, method: str) -> Mapping[str, str]:
        return self._account.sign(method, self._url)


class S3Lister(Lister):
    """The keys of buckets; all keys below a directory are listed at once."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options

    async def list(self, url: str) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the objects below a prefix. One that is not below it comes under an absolute name.

        :raises SourceError: if they cannot be listed
        """
        directory, shown = parse_prefix(url), redact(url)
        policy = self._options.dialer.policy
        if not policy.anywhere:
            raise AddressRefused(f"{shown}: such a URL must come from the user, not from a server", policy.remedy)
        account = await S3Account.find(directory._replace(key=""), self._options.own)
        seen, tokens, token, fruitless = set[str](), set[str](), None, 0
        while True:
            await account.renew()
            page = await self._page(account, directory.key, token, shown)
            fresh = {key: size for key, size in page.keys if key not in seen}
            names = [(_name(key, directory.key), size) for key, size in fresh.items()]
            fruitless = 0 if names else fruitless + 1
            if page.token and (page.token in tokens or fruitless > MOST_EMPTY):
                raise Unsupported(f"{shown}: the listing does not end", "give the URLs of objects")
            seen.update(fresh)
            yield [Entry(name, "file", size) for name, size in names if not _is_marker(name, size)]
            token = page.token
            if token is None:
                break
            tokens.add(token)
        if not seen and directory.key:
            raise NoSuchFile(f"{shown}: the bucket has no key that begins so", "check the path in the URL")

    async def _page(self, account: S3Account, prefix: str, token: str | None, shown: str) -> KeyPage:
        """Return one answer, from the region that the bucket is in."""
        for last in (False, True):
            query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
            query |= {"continuation-token": token} if token else {}
            pairs = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))
            url = f"{account.url}?{pairs}"
            server = HTTPExchange(url, self._options, lambda _: None, signer=_ListingSigner(account, url), shown=shown)
            try:
                async with server.timely(LIST_SECONDS):
                    answer = await self._ask(server, account, shown, last)
                if answer:
                    return answer
            finally:
                await server.close()
        raise AssertionError("the second answer is used, or raised")

    async def _ask(self, server: HTTPExchange, account: S3Account, shown: str, last: bool) -> KeyPage | None:
        """Return the answer of a server; None, if it is in another region, after the account moved there."""
        page, refused = KeyPage(shown), b""
        async with server.timely(SECONDS):
            answering = server.answer("GET", {})
            answer = await answering.__aenter__()
        try:
            pieces = answer.aiter_raw()
            while True:
                async with server.timely(SECONDS):
                    with server.border():
                        piece = await anext(pieces, b"")
                if not piece or len(refused) > LONGEST_ERROR:
                    break
                if answer.status_code == 200:
                    page.feed(piece)
                else:
                    refused += piece
            if answer.status_code == 200:
                page.close()
                return page
            where = region(answer.headers, refused)
            if where and where != account.place.region and is_region(where) and not last:
                account.move(where)
                return None
            raise refusal(error_code(refused), shown, lambda: server.refusal(answer))
        finally:
            await answering.__aexit__(None, None, None)

    async def close(self) -> None:
        """Do nothing: no connection is open between two answers."""


def _is_marker(name: str, size: int | None) -> bool:
    """Return whether a key only marks a directory: it is empty, and ends with a slash.

    >>> _is_marker("sub/", 0), _is_marker("", 0), _is_marker("sub/", 9)
    (True, True, False)
    """
    return size == 0 and (not name or name.endswith("/"))


def _name(key: str, prefix: str) -> str:
    """Return the path of a key from the directory; an absolute one if it is not below it.

    >>> _name("run/x", "run/"), _name("other", "run/")
    ('x', '/other')
    """
    return key.removeprefix(prefix) if key.startswith(prefix) else f"/{key}"
