"""The links of a promise, with what is promised on them and on the servers at their ends. Pure."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from broker.models.guarantees import PromisedLink
from coalloc.guarantees.deadline import PathRate, finish
from coalloc.guarantees.finish import FinishErrors
from coalloc.guarantees.finish_admission import (
    AdmittedFinish,
    FinishView,
    PromisedShares,
    RefusedFinish,
    ServerLimit,
    SharedPath,
    admit,
    view,
)

__all__ = ["KnownLinks", "Promising", "decide", "look", "scale_left", "unpromised"]

ERRORS = FinishErrors()
SURE, LEAST = 0.95, 0.05
"""Probability with which a link has the rate that transfers without a promise may use; and the part of its expected
rate that these have in any case."""


class KnownLinks(NamedTuple):
    """The links from some sources to a sink about which something is known.

    :ivar server: address of the destination's server; empty if only its site is known
    :ivar rates: expected rate of each link, by source
    :ivar capacities: stated capacities of servers, in bytes per second
    """

    sink: str
    server: str
    rates: Mapping[str, PathRate]
    capacities: Mapping[str, float]

    def paths(self, ledger: Sequence[PromisedLink]) -> list[SharedPath]:
        """Return the links with all that is promised on them, in the order of `rates`."""
        by_source: dict[str, list[PromisedLink]] = {source: [] for source in self.rates}
        for each in ledger:
            if each.source in by_source:
                by_source[each.source].append(each)
        return [
            SharedPath(
                rate,
                PromisedShares(each.share for each in by_source[source] if each.sink == self.sink),
                self._limit(source, by_source[source]),
            )
            for source, rate in self.rates.items()
        ]

    def destination(self, ledger: Sequence[PromisedLink]) -> ServerLimit:
        """Return the interface of the destination's server."""
        return self._limit(self.server, [each for each in ledger if each.server == self.server])

    def _limit(self, server: str, ledger: Sequence[PromisedLink]) -> ServerLimit:
        return ServerLimit(self.capacities.get(server, inf), PromisedShares(each.share for each in ledger))


class Promising(NamedTuple):
    """A promise that a user wants: so many bytes over these links by a deadline, with a probability.

    :ivar by: seconds since the epoch
    :ivar request_id: the client's id of the request, if it gave one
    :ivar task: the task that moves the bytes; None for a client's transfer
    """

    owner: str
    links: KnownLinks
    bytes: int
    by: float
    sure: float
    request_id: str | None = None
    task: str | None = None


def decide(wanted: Promising, ledger: Sequence[PromisedLink], now: float) -> AdmittedFinish | RefusedFinish:
    """Decide about a promise; the shares of an admitted one are in the order of the links' rates."""
    links = wanted.links
    return admit(wanted.bytes, now, wanted.by, wanted.sure, links.paths(ledger), links.destination(ledger), ERRORS)


def look(wanted: Promising, ledger: Sequence[PromisedLink], now: float, number: int | None = None) -> FinishView:
    """Return the outlook of a promise for the bytes that are left, after all earlier promises.

    :param number: its own number, as earlier promises have smaller ones; None if nothing was promised
    """
    if number is None:
        found = decide(wanted, ledger, now) if wanted.bytes else FinishView(1.0, now)
        match found:
            case AdmittedFinish(chance=chance, t95=later) | RefusedFinish(chance=chance, earliest=later):
                return FinishView(chance, inf if later is None else later)
        return found
    begin = max([now, *(each.share.since for each in ledger if each.guarantee == number)])
    earlier = [each for each in ledger if each.guarantee < number]
    links = wanted.links
    return view(wanted.bytes, begin, wanted.by, wanted.sure, links.paths(earlier), links.destination(earlier), ERRORS)


def unpromised(path: SharedPath, own: float) -> float | None:
    """Return the rate that a transfer may use beside all that is promised to others; None if that limits nothing.

    That is the rate that the link probably has in any case, less what is promised. A little is always left, so that
    transfers without a promise do not stand still.

    :param path: the link, with the shares of others that are in force now
    :param own: the rate that is promised to the transfer itself, in bytes per second
    """
    busy = sum(share.rate for share in path.promised)
    at_server = path.server.rate - sum(share.rate for share in path.server.promised)
    if not busy and at_server == inf:
        return None
    sure = 1 / finish(1.0, [path.rate._replace(setup=0.0)]).within(SURE, ERRORS)
    return max(own, LEAST * path.rate.rate, min(sure - busy, at_server))


def scale_left(left: int, by: float, since: float, rate: float, now: float) -> float:
    """Return the factor by which the shares of a promise may shrink, as it is ahead of its time; at most 1.

    :param rate: sum of its shares, in bytes per second
    """
    seconds = by - max(now, since)
    return min(1.0, left / seconds / rate) if seconds > 0 and rate > 0 else 1.0
