"""Where the broker connects to on behalf of users: not to what is on the link, or to many at once.

Servers of a site have private addresses, and the broker's own machine may have one: those are as good as others. What
is at link-local addresses are the machine's neighbours, and in clouds the service that hands out the machine's
credentials: no server of a collection is there.
"""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

__all__ = ["refused"]

NAT64 = IPv6Network("64:ff9b::/96")


def refused(address: str) -> bool:
    """Whether nothing of ours goes to this numeric address; by itself or in the clothes of IPv6.

    >>> [refused(each) for each in ("127.0.0.1", "10.1.2.3", "2001:db8::1")]
    [False, False, False]
    >>> [refused(each) for each in ("169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::ffff:169.254.0.1")]
    [True, True, True, True]
    >>> [refused(each) for each in ("0.0.0.0", "224.0.0.1", "255.255.255.255", "fe80::1%eth0", "::", "ff02::1")]
    [True, True, True, True, True, True]
    """
    known = _plain(ip_address(address.partition("%")[0]))
    limited = isinstance(known, IPv4Address) and known.is_reserved
    return known.is_link_local or known.is_multicast or known.is_unspecified or limited


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
