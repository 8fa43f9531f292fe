"""Limits of a depot: sessions and buffers at once, the use of each ticket, and replayed requests."""

from collections import Counter

from coalloc.depot.daemon.permissions import AHEAD_SECONDS, CLOCK_SECONDS, SessionPermission
from coalloc.depot.daemon.pump import Account
from coalloc.depot.daemon.settings import DepotSettings
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.protocol.session_header import SessionHeader
from coalloc.depot.tickets import Ticket

__all__ = ["Limits"]

LEAST_BUFFER = 1 << 16
"""Smaller buffers are of no use: the pipe of a session without a buffer holds as many bytes."""


class _TicketUse:
    """The use of one ticket so far."""

    def __init__(self, ticket: Ticket) -> None:
        self.sessions = 0
        self.account = Account(ticket.bytes)
        self.expires = ticket.expires


class Limits:
    """The use of a depot by all users.

    :param started: time since when all requests are known, in seconds since 1970
    """

    def __init__(self, settings: DepotSettings, started: float) -> None:
        self._settings = settings
        self._started = started
        self._by_user: Counter[str] = Counter()
        self._buffers: Counter[str] = Counter()
        self._tickets: dict[str, _TicketUse] = {}
        self._requests: dict[str, float] = {}
        """Time of arrival of each request with a proof, by the proof."""

    def take(self, permission: SessionPermission, header: SessionHeader | None, now: float) -> tuple[Account, int]:
        """Count a session that begins.

        :returns: the account of its bytes, and the bytes that it may buffer
        :raises DepotFailure: if a limit is reached, or the request was seen before
        """
        settings = self._settings
        most = settings.most_per_user if permission.ticket else settings.most_per_address
        if self._by_user[permission.user] >= most:
            raise DepotFailure("busy", "you have too many sessions at this depot")
        account = Account()
        if permission.ticket is not None:
            if header:
                self._note(header, now)
            account = self._use(permission.ticket, now)
        self._by_user[permission.user] += 1
        buffer = self._buffer(permission.user, header.request.buffer if header else 0)
        self._buffers[permission.user] += 2 * buffer
        return account, buffer

    def give_back(self, permission: SessionPermission, buffer: int) -> None:
        """Count a session that has ended."""
        for counter, count in ((self._by_user, 1), (self._buffers, 2 * buffer)):
            counter[permission.user] -= count
            if not counter[permission.user]:
                del counter[permission.user]

    def _buffer(self, user: str, wanted: int) -> int:
        """Return how much of a wanted buffer is free, for each of two directions."""
        settings = self._settings
        free = min(
            settings.buffer_per_session,
            settings.buffer_per_user - self._buffers[user],
            settings.buffer_in_all - self._buffers.total(),
        )
        granted = min(wanted, free // 2)
        return granted if granted >= LEAST_BUFFER else 0

    def _note(self, header: SessionHeader, now: float) -> None:
        """Remember a request as long as its proof is valid.

        :raises DepotFailure: if it was seen before, or may have been seen before the depot's start
        """
        proof = header.passes[0].proof  # and not the session, which others could use first
        if proof in self._requests or header.request.time < self._started:
            raise DepotFailure("ticket", "the session header was used before")
        self._requests[proof] = now
        while self._requests[oldest := next(iter(self._requests))] < now - CLOCK_SECONDS - AHEAD_SECONDS:
            del self._requests[oldest]

    def _use(self, ticket: Ticket, now: float) -> Account:
        for each in [each for each, use in self._tickets.items() if use.expires < now]:
            del self._tickets[each]
        use = self._tickets.setdefault(ticket.id, _TicketUse(ticket))
        if use.sessions >= ticket.sessions or use.account.exhausted:
            raise DepotFailure("ticket", "the ticket is used up")
        use.sessions += 1
        return use.account
