"""The httpx clients of an exchange: one for each server, so that none gets another's login or cookies.

A client that is idle at the end may serve the next exchange: it is then detached and kept.
"""

from typing import TYPE_CHECKING, NamedTuple

from coalloc.credentials import Presenter
from coalloc.credentials.origins import WebOrigin
from coalloc.engine.base import EngineOptions
from coalloc.engine.http.answers import closes
from coalloc.engine.http.channel import HTTPConnection
from coalloc.engine.http.plain import PlainAnswer, PlainServer, Reached
from coalloc.engine.http.redirects import RequestTarget
from coalloc.engine.http.responses import Answer, connection_of, is_direct, origin_of
from coalloc.util.addresses import AddressPolicy

if TYPE_CHECKING:
    import httpx

    from coalloc.engine.http.transport import ClientSecrets

__all__ = ["HTTPClients", "KeptClient"]

_Server = tuple[WebOrigin, AddressPolicy]


class KeptClient(NamedTuple):
    """An idle httpx client for one server, with at most one connection, and the secrets that it was made with."""

    server: _Server
    secrets: "ClientSecrets"
    client: "httpx.AsyncClient"
    connection: HTTPConnection

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class HTTPClients:
    """The clients of one exchange.

    :param plain: connections over plain TCP to the first server, of which its client takes a spare one
    :param reached: called for each connection with the round-trip time in seconds
    """

    def __init__(
        self, presenter: Presenter, options: EngineOptions, plain: PlainServer | None, reached: Reached
    ) -> None:
        self._presenter = presenter
        self._dialer = options.dialer
        self._connect_seconds = options.connect_seconds
        self._plain = plain
        self._reached = reached
        self._clients: dict[_Server, httpx.AsyncClient] = {}

    def client(self, place: RequestTarget) -> "httpx.AsyncClient":
        """Return the client for a target's server."""
        from coalloc.engine.http.transport import client

        if place.server not in self._clients:
            dialer = self._dialer.under(place.policy)
            spare = self._plain.spare if self._plain and not self._clients else lambda: None  # of the first server
            secrets = self._secrets(origin_of(place.url))
            made = client(str(place.url), dialer, self._connect_seconds, self._reached, spare, secrets)
            self._clients[place.server] = made
        return self._clients[place.server]

    def detach(self, answer: Answer) -> KeptClient | None:
        """Give up the client of a response that was read completely, for another exchange; None if it cannot be kept.

        Only a client of the URL's own server is kept: none after a redirect, or behind a proxy.
        """
        if isinstance(answer, PlainAnswer) or answer.history or closes(answer.headers) or not is_direct(answer):
            return None
        server = origin_of(answer.request.url), self._dialer.policy
        client = self._clients.pop(server, None)
        return KeptClient(server, self._secrets(server[0]), client, connection_of(answer)) if client else None

    def continue_with(self, kept: KeptClient | None) -> None:
        """Send the next requests by this client, if they would be sent with its cookies and certificate; else close it.

        Then it belongs to this exchange.
        """
        if kept is None:
            return
        server, mine = kept.server, self._secrets(kept.server[0])
        own = server == (self._presenter.first, self._dialer.policy)
        if own and kept.secrets.jar is mine.jar and kept.secrets.certificate == mine.certificate:
            self._clients[server] = kept.client
        else:
            kept.close()

    async def close_all_but(self, *places: RequestTarget) -> None:
        """Close the clients of all servers but those of these targets."""
        retained = {place.server for place in places}
        for server in self._clients.keys() - retained:
            await self._clients.pop(server).aclose()

    def _secrets(self, server: WebOrigin) -> "ClientSecrets":
        from coalloc.engine.http.transport import ClientSecrets

        return ClientSecrets(self._presenter.jar(server), self._presenter.certificate(server).shown)
