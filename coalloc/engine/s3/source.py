"""One session for an object of an S3 service: an HTTP session whose requests are signed.

Redirects are not followed, as the signature is for one host; a bucket in another region of AWS is asked there. Only
URLs that the user gave are opened, because the user's keys sign the requests.
"""

from coalloc.engine.base import EngineOptions
from coalloc.engine.http.exchange import HTTPExchange
from coalloc.engine.http.responses import Answer
from coalloc.engine.http.source import HTTPFindings, HTTPSource
from coalloc.engine.s3.account import S3Account
from coalloc.engine.s3.answers import LONGEST_ERROR, ExpiredLogin, checksums, error_code, refusal, region
from coalloc.engine.s3.objects import is_region, parse
from coalloc.engine.span import Deliver, Span
from coalloc.errors import AddressRefused, SourceError
from coalloc.model.replicas import Stat

__all__ = ["S3Findings", "S3Source"]


class S3Findings(HTTPFindings):
    """Findings that the sessions with one object share. `account`: the keys, and the bucket's region."""

    account: S3Account | None = None


class _OtherRegion(SourceError):
    """A bucket that is in another region. Internal: ask there."""

    region = ""


class S3Source(HTTPSource):
    """One session for an object.

    :param known: findings shared with other sessions for the same object
    :param number: number of this session, from 0
    :raises UsageError: when the URL names no object
    """

    _known: S3Findings

    def __init__(self, url: str, options: EngineOptions, known: S3Findings | None = None, number: int = 0) -> None:
        self._object = parse(url)
        super().__init__(url, options, known or S3Findings(), number)

    async def open(self) -> Stat:
        policy = self.options.dialer.policy
        if not policy.anywhere:
            raise AddressRefused(f"{self._shown}: such a URL must come from the user, not from a server", policy.remedy)
        account = self._known.account = self._known.account or await S3Account.find(self._object, self.options.own)
        await account.renew()
        try:
            return await self._open_at(account)
        except _OtherRegion as elsewhere:
            account.move(elsewhere.region)
        except ExpiredLogin:
            if not await account.reload():
                raise
        return await self._open_at(account)

    async def _open_at(self, account: S3Account) -> Stat:
        await self.close()
        self._server = HTTPExchange(account.url, self.options, self._reached, signer=account, shown=self._shown)
        return await super().open()

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        account = self._known.account
        assert account  # found by `open`
        await account.renew()
        try:
            await super().fetch(span, deliver)
        except ExpiredLogin:  # the user may have logged in again
            if not await account.reload():
                raise
            await super().fetch(span, deliver)

    def _stat(self, size: int, answer: Answer, ranged: bool) -> Stat:
        stat = super()._stat(size, answer, ranged)
        assert self._known.account
        stated = {each.algorithm: each for each in checksums(answer.headers, self._known.account.place.bucket)}
        stated.update((each.algorithm, each) for each in stat.checksums)
        return stat._replace(checksums=tuple(stated.values()))

    async def _refusal(self, answer: Answer) -> SourceError:
        document = b""
        with self._server.border():
            async for chunk in answer.aiter_raw():
                document += chunk[: LONGEST_ERROR - len(document)]
                if len(document) >= LONGEST_ERROR:
                    break
        account = self._known.account
        where = region(answer.headers, document)
        if account and where and where != account.place.region and is_region(where) and answer.status_code != 200:
            elsewhere = _OtherRegion(f"{self._shown}: the bucket is in the region {where}", "use that region")
            elsewhere.region = where
            return elsewhere
        return refusal(error_code(document), self._shown, lambda: self._server.refusal(answer))
