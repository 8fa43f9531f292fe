"""A finish time that the broker promises: it reserves shares of links for one transfer, beside those of other users.

A broker that does not answer, or knows nothing about the links, promises nothing, and the transfer goes on without it.
Only a refusal of the time itself ends the transfer, before its first byte, if it rests on all its sources.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

from coalloc.broker_connection import NONSENSE, BrokerConflict, BrokerConnection, BrokerRefuses, BrokerSilent
from coalloc.config import BrokerAccess
from coalloc.errors import CoallocError, DeadlineRefused
from coalloc.history.values import source_key
from coalloc.model.progress import Snapshot
from coalloc.model.promises import Deadline
from coalloc.util import human
from coalloc.util.documents import document, number, whole

__all__ = ["ReservedFinish", "named_servers", "usable_servers"]

log = logging.getLogger(__name__)

EVERY = 60.0
"""Seconds between two reports; the broker gives up clients that are silent for five minutes."""
ASKED = 10.0
"""Maximum seconds to wait for the promise: the time runs already."""
MOST_SOURCES = 16
"""Most sources in a request."""
PATIENCE = 5.0
"""Maximum seconds that a user waits for the broker after the transfer."""
FURTHEST = 1e9
"""Seconds beyond which a time is nonsense."""


class ReservedFinish:
    """The broker's promise for one transfer to this site.

    :param most: maximum number of sources that the transfer uses; None for no limit
    :ivar number: its number at the broker; None if nothing was promised
    :ivar is_over: whether the broker ended the promise before the transfer did
    """

    def __init__(self, access: BrokerAccess, deadline: Deadline, name: str, most: int | None = None) -> None:
        self._access = access
        self._broker = BrokerConnection(access, "try again")
        self._deadline = deadline
        self._name = name
        self._most = most
        self._request_id = str(uuid4())
        self._snapshot: Callable[[], Snapshot] | None = None
        self.number: int | None = None
        self.is_over = False

    async def admit(self, left: int) -> None:
        """Ask for the promise, before the first byte, within `held`.

        :param left: bytes that are missing
        :raises DeadlineRefused: if the broker knows all links, and they are too slow, or promised to others
        """
        assert self._snapshot, "the promise is held"
        usable = usable_servers(self._snapshot(), self._most)
        servers = named_servers(usable)
        if not (left and servers):
            return
        deadline = self._deadline
        wanted: dict[str, Any] = {"bytes": left, "sources": servers, "by": deadline.at, "sure": deadline.sure}
        if self._access.site:
            wanted["sink"] = self._access.site
        wanted["request_id"] = self._request_id
        try:
            self.number = _open(await self._asked(wanted))
        except BrokerRefuses as error:
            rests_on_all = set(usable) <= _considered(error.answer).intersection(servers)
            if rests_on_all and (refused := self._refused(error.answer)):
                raise refused from None
            log.info("the broker promises nothing: %s", error.message)
        except CoallocError as error:
            log.info("the broker promises nothing: %s", error.message)
        except NONSENSE as error:
            log.info("the broker promises nothing: %s", self._broker.nonsense(error).message)

    async def _asked(self, wanted: Mapping[str, Any]) -> str:
        """Return the answer; ask once more if it was lost, as the broker may have reserved the shares all the same."""
        try:
            with suppress(BrokerSilent):
                return await self._broker.ask("POST", "/guarantees", ASKED, json=wanted)
            return await self._broker.ask("POST", "/guarantees", PATIENCE, json=wanted)
        except asyncio.CancelledError:
            with suppress(CoallocError, *NONSENSE):  # a promise that is found is given up at the end of `held`
                self.number = _open(await self._broker.ask("POST", "/guarantees", PATIENCE, json=wanted))
            raise

    def _refused(self, answer: Mapping[str, Any]) -> DeadlineRefused | None:
        """Return the error for a refusal of the time; None if something else was refused."""
        try:
            if answer["error"]["code"] != "not_guaranteed":
                return None
            chance = min(1.0, number(answer["chance"]))
            earliest = None if answer["earliest"] is None else number(answer["earliest"])
        except NONSENSE:
            return None
        now = time.time()
        offers = [f"--by {human.moment(earliest)}"] if earliest and now < earliest < now + FURTHEST else []
        deadline = self._deadline
        return DeadlineRefused(
            f"{self._name} will be complete by {human.moment(deadline.at)} with a probability of "
            f"{human.probability(chance)}, not {100 * deadline.sure:g} %, beside what the broker "
            f"{self._access.url} has promised to others",
            f"use {', '.join([*offers, 'a lower --sure'])}, or more sources",
        )

    @asynccontextmanager
    async def held(self, snapshot: Callable[[], Snapshot]) -> AsyncIterator[None]:
        """Keep the promise open while a transfer runs; then report its end or failure, or give it up if cancelled.

        :param snapshot: returns the state of the transfer
        """
        self._snapshot = snapshot
        reporting = asyncio.create_task(self._report(snapshot))
        complete: bool | None = None
        try:
            yield
            complete = True
        except Exception:
            complete = False
            raise
        finally:
            reporting.cancel()
            await asyncio.wait([reporting])
            await self._end(complete)

    async def _report(self, snapshot: Callable[[], Snapshot]) -> None:
        """Report again and again what is missing, until the promise is over."""
        while True:
            await asyncio.sleep(EVERY)
            seen = snapshot()
            if self.number is None or seen.size is None:
                continue
            try:
                left = {"bytes_left": max(0, seen.size - seen.done_bytes)}
                await self._broker.ask("POST", f"/guarantees/{self.number}/progress", json=left)
            except BrokerConflict as error:
                log.info("the broker's promise is over: %s", error.message)
                self.is_over = True
                return
            except CoallocError as error:
                log.info("failed to report to the broker: %s", error.message)

    async def _end(self, complete: bool | None) -> None:
        """Report the end; None if the transfer was cancelled."""
        if self.number is None:
            return
        path = f"/guarantees/{self.number}"
        try:
            if complete is None:
                await self._broker.ask("DELETE", path, PATIENCE)
            else:
                answer = await self._broker.ask("POST", f"{path}/ended", PATIENCE, json={"complete": complete})
                self.is_over |= document(answer)["outcome"] != ("kept" if complete else "broken")
        except BrokerConflict as error:
            log.info("the broker's promise is over: %s", error.message)
            self.is_over = True
        except CoallocError as error:  # it ends by itself when no report follows
            log.info("failed to report to the broker: %s", error.message)
        except NONSENSE as error:
            log.info("failed to report to the broker: %s", self._broker.nonsense(error).message)


def usable_servers(seen: Snapshot, most: int | None) -> list[str]:
    """Return the servers that a transfer can use now, the best ones first; `file://` is this machine's disk."""
    usable = [each.url for each in seen.sources if each.state not in ("dropped", "waiting")][:most]
    return list(dict.fromkeys(source_key(url) if "://" in url else "file://" for url in usable))


def named_servers(usable: Sequence[str]) -> list[str]:
    """Return the usable servers that a broker is asked about."""
    return [server for server in usable if not server.endswith("//")][:MOST_SOURCES]


def _considered(refusal: Mapping[str, Any]) -> set[str]:
    """Return the sources that a refusal rests on; none if it does not say."""
    try:
        return set(refusal["sources"])
    except NONSENSE:
        return set()


def _open(answer: str) -> int:
    """Return the number of an open promise. :raises ValueError: for anything else"""
    made = document(answer)
    if made["outcome"] != "open":
        raise ValueError(f"a new promise is {made['outcome']!r:.40}")
    return whole(made["id"])
