"""Settings of a depot."""

from pathlib import Path
from typing import NamedTuple

from coalloc.config import BrokerAccess
from coalloc.depot.protocol.addresses import DestinationPattern, HostPort
from coalloc.util.addresses import Network

__all__ = ["DepotSettings"]


class DepotSettings(NamedTuple):
    """Settings of a depot.

    :param listen: address on which to accept connections
    :param name: name of the depot in tickets
    :param secret: secret shared with the broker; None if the depot takes no tickets
    :param clients: networks of permitted clients; empty: with a secret, all that have a ticket, else this machine
    :param destinations: permitted destinations; empty: with a secret, those in the ticket, else this machine
    :param table: file with the next hops of loose routes
    :param broker: broker to which the legs are reported, and which gives a forwarding table; None for none
    :param audit: file for a line about each session; None for the standard error stream
    :param data_ports: first and last port to open for clients that ask for one; None for any free one
    :param congestion: congestion control of outgoing connections; "" for the system's
    :param most_sessions: maximum number of sessions at once
    :param most_per_user: the same for each user
    :param buffer_per_session: maximum bytes of the buffers that a session may ask for
    :param buffer_per_user: the same for all sessions of a user
    :param buffer_in_all: the same for all sessions
    :param header_seconds: time for a client to send its request
    :param connect_seconds: time to connect to the next hop
    :param idle_seconds: time without any byte after which a session is reset
    :param drain_seconds: time for running sessions to end when the depot shuts down
    :param refresh_seconds: time between two reports to the broker
    """

    listen: HostPort = HostPort("127.0.0.1", 4000)
    name: str = "depot"
    secret: bytes | None = None
    clients: tuple[Network, ...] = ()
    destinations: tuple[DestinationPattern, ...] = ()
    table: Path | None = None
    broker: BrokerAccess | None = None
    audit: Path | None = None
    data_ports: tuple[int, int] | None = None
    congestion: str = ""
    most_sessions: int = 10_000
    most_per_user: int = 1_000
    buffer_per_session: int = 64 << 20
    buffer_per_user: int = 256 << 20
    buffer_in_all: int = 1 << 30
    header_seconds: float = 10.0
    connect_seconds: float = 15.0
    idle_seconds: float = 3600.0
    drain_seconds: float = 60.0
    refresh_seconds: float = 60.0

    @property
    def most_per_address(self) -> int:
        """Maximum number of sessions without a ticket, or of connections that are not sessions yet, of one address."""
        return max(1, min(self.most_per_user, self.most_sessions // 4))
