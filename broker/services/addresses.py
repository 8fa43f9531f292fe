"""Which addresses the broker and its workers connect to on behalf of users.

Public ones; private and loopback ones of the networks that the configuration lists, and those of endpoints that an
admin has registered, by name and port; link-local ones never. What such a server names in turn (a redirect, a peer)
needs to be public, listed or registered itself.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

from broker.models.catalogue import PORTS, Endpoint
from coalloc.addresses import AddressClass, AddressPolicy, Network, server

__all__ = ["issuer_policy", "policy_for"]

LISTED = "list its network in [network] of --config"
REMEDY = "list its network in [network] of --config, or have an admin register the endpoint"


def issuer_policy(networks: tuple[Network, ...], issuer: str) -> AddressPolicy:
    """The policy for what the documents of an issuer name: its own server, which the configuration names, is allowed.

    :raises ValueError: when the issuer's URL makes no sense
    """
    parts = urlsplit(issuer)
    own = server(parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0))
    return AddressPolicy(AddressClass.PUBLIC, networks, servers=frozenset({own}), remedy=LISTED)


def policy_for(
    networks: tuple[Network, ...], opened: Iterable[Endpoint], known: Iterable[Endpoint] = ()
) -> AddressPolicy:
    """The policy for what users and curators name.

    :param opened: endpoints that may be anywhere but at link-local addresses
    :param known: endpoints whose data may come from other hosts, as their records say
    """
    named = frozenset(map(_server, opened))
    apart = frozenset((_server(each), host) for each in known for host in each.data_hosts)
    return AddressPolicy(AddressClass.PUBLIC, networks, servers=named, data_hosts=apart, remedy=REMEDY)


def _server(endpoint: Endpoint) -> tuple[str, int]:
    return server(endpoint.host.strip("[]"), endpoint.port or PORTS[endpoint.scheme])
