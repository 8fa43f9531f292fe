"""Checks of the hops of a route, for `coget doctor --via`."""

import asyncio
import socket
from typing import NamedTuple

from coalloc.depot.client import ANSWER_SECONDS, relay
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import CONNECTING, DepotFailure, FailureCode
from coalloc.depot.route import DepotRoute
from coalloc.errors import SourceError
from coalloc.util.addresses import ANYWHERE, AddressPolicy
from coalloc.util.dialer import DirectDialer

__all__ = ["HopCheck", "check_hops"]

REMEDIES: dict[FailureCode, str] = {
    "denied": "ask the depot's admin to permit it",
    "ticket": "ask the depot's admin for a ticket, and put it into tokens.toml",
    "loop": "name each depot once; if the route ends with *, ask the admins to correct their tables",
    "busy": "try again later",
    "closing": "try again later, or leave the depot out",
    **dict.fromkeys(("malformed", "unsupported"), "check that host and port are those of a depot"),
    **dict.fromkeys(CONNECTING, "check host and port, and that it is running"),
}


class HopCheck(NamedTuple):
    """The check of one hop.

    :param place: a depot, or the server
    :param seconds: time to connect to it from the hop before; None if it was not reached, or the time is unknown
    :param error: the failure of this hop; "" for none
    :param reached: whether it was reached
    :param remedy: remedy for the failure
    """

    place: HostPort
    reached: bool
    seconds: float | None = None
    error: str = ""
    remedy: str = ""


async def check_hops(route: DepotRoute, to: HostPort, policy: AddressPolicy = ANYWHERE) -> list[HopCheck]:
    """Open a session over a route, and return the check of each depot, then of the server.

    :param policy: policy that the address of the first depot must satisfy
    """
    loop, times = asyncio.get_running_loop(), list[float]()

    async def connect(depot: HostPort) -> socket.socket:
        began = loop.time()
        sock = await DirectDialer(policy).dial(depot.host, depot.port, ANSWER_SECONDS)
        times.append(loop.time() - began)
        return sock

    places = [*route.depots, to]
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            sock, legs = await relay(route, to, connect)
        sock.close()
    except DepotFailure as failure:
        failed = min((failure.hop or 0) + (failure.code in CONNECTING), len(places) - 1)
        return _checks(places, times, failed, failure.message, REMEDIES[failure.code])
    except (SourceError, OSError) as error:
        return _checks(places, times, 0, str(error) or "no answer in time", REMEDIES["timeout"])
    last = len(route.depots) - 1
    took = [*times, *legs[:last], sum(legs[last:])]  # the last depot of a loose route may have chosen further ones
    return [HopCheck(place, True, seconds) for place, seconds in zip(places, took, strict=False)]


def _checks(places: list[HostPort], times: list[float], failed: int, message: str, remedy: str) -> list[HopCheck]:
    """Return the checks of a route on which one hop failed."""
    known = dict(enumerate(times))
    before = [HopCheck(place, True, known.get(hop)) for hop, place in enumerate(places[:failed])]
    return [
        *before,
        HopCheck(places[failed], False, error=message, remedy=remedy),
        *(HopCheck(each, False) for each in places[failed + 1 :]),
    ]
