"""The policy for addresses to which the broker and its workers connect for users.

Public addresses are allowed. Private and loopback addresses are allowed in networks that the configuration lists, and
for the host and port of endpoints that an admin has registered. Link-local addresses are never allowed. The target of
a server's redirect, or a peer that it names, must be allowed itself.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

from broker.models.catalogue import PORTS, Endpoint
from coalloc.util.addresses import AddressClass, AddressPolicy, Network, server

__all__ = ["issuer_policy", "policy_for"]

LISTED = "list its network in [network] of --config"
REMEDY = "list its network in [network] of --config, or have an admin register the endpoint"


def issuer_policy(networks: tuple[Network, ...], issuer: str) -> AddressPolicy:
    """Return the policy for addresses in an issuer's documents, which allows the issuer's own server.

    :param networks: networks whose private and loopback addresses are allowed
    :param issuer: URL of the issuer
    :raises ValueError: when the issuer's URL is malformed
    """
    parts = urlsplit(issuer)
    own = server(parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0))
    return AddressPolicy(AddressClass.PUBLIC, networks, servers=frozenset({own}), remedy=LISTED)


def policy_for(
    networks: tuple[Network, ...], opened: Iterable[Endpoint], known: Iterable[Endpoint] = ()
) -> AddressPolicy:
    """Return the policy for addresses that users and curators name.

    :param networks: networks whose private and loopback addresses are allowed
    :param opened: endpoints whose addresses may be private or loopback
    :param known: endpoints whose data may also come from their `data_hosts`
    """
    named = frozenset(map(_server, opened))
    apart = frozenset((_server(each), host) for each in known for host in each.data_hosts)
    return AddressPolicy(AddressClass.PUBLIC, networks, servers=named, data_hosts=apart, remedy=REMEDY)


def _server(endpoint: Endpoint) -> tuple[str, int]:
    return server(endpoint.host.strip("[]"), endpoint.port or PORTS[endpoint.scheme])
