"""Classes of addresses and the rules for them: by tables, and by properties that hold for all addresses."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.model.replicas import Origin
from coalloc.util.addresses import ANYWHERE, AddressClass, AddressPolicy, class_of, parse_networks, policy_of

PUBLIC, PRIVATE, LOOPBACK, LINK_LOCAL = AddressClass


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (("8.8.8.8", "192.0.2.1", "203.0.113.9", "172.32.0.1", "2600::1", "2001:db8::1"), PUBLIC),
        (("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.7.7", "100.64.0.1", "198.19.0.1"), PRIVATE),
        (("fd00::1", "fc00::", "fec0::1", "2001:2::1"), PRIVATE),
        (("127.0.0.1", "127.255.255.255", "::1"), LOOPBACK),
        (("169.254.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"), LINK_LOCAL),
        (("fe80::1", "febf::1%eth0", "fe80::1%1", "ff02::1", "::", "100::1", "4000::1"), LINK_LOCAL),
        (("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"), LINK_LOCAL),
    ],
)
def test_classes(addresses, expected):
    assert {address: class_of(address) for address in addresses} == dict.fromkeys(addresses, expected)


def carriers(inner):
    """Return IPv6 addresses that embed an IPv4 one."""
    four = int(inner)
    high, low = four >> 16, four & 0xFFFF
    hidden = four ^ 0xFFFFFFFF
    *_, c, d = inner.packed
    yield f"::ffff:{inner}"
    yield f"::ffff:0:{inner}"
    yield f"64:ff9b::{inner}"
    yield f"64:ff9b:1::{inner}"
    yield f"64:ff9b:1:abcd::{inner}"
    yield f"64:ff9b:1:{high:x}:{c:x}:{d:02x}00::"
    yield f"2002:{high:x}:{low:x}::1"
    yield f"2001:0:808:808:0:0:{hidden >> 16:x}:{hidden & 0xFFFF:x}"
    yield f"2001:0:{high:x}:{low:x}:0:0:f7f7:f7f7"
    yield f"2001:db8::5efe:{inner}"
    yield f"2001:db8::200:5efe:{inner}"


@given(st.ip_addresses(v=4))
def test_no_clothes_make_an_address_more_public(inner):
    known = class_of(str(inner))
    for carrier in carriers(inner):
        assert class_of(carrier) >= known or inner.packed[0] == 0, carrier


@pytest.mark.parametrize("inner", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1"])
def test_carriers_count_as_what_they_carry(inner):
    for carrier in (*carriers(IPv4Address(inner)), f"::{inner}"):
        assert class_of(carrier) == class_of(inner), carrier


anything = st.ip_addresses().map(str)
inner = st.sampled_from([*AddressClass])
networks = st.lists(st.sampled_from(["10.0.0.0/8", "127.0.0.0/8", "fd00::/8", "0.0.0.0/1", "::/0"])).map(parse_networks)
policies = st.builds(AddressPolicy, inner, networks, st.just(frozenset()), st.just(frozenset()), st.just(""))


@given(policies, anything, st.none() | anything)
def test_a_server_opens_nothing_that_was_closed(policy, address, server):
    named = policy.named_by(server)
    if named.allows(address):
        assert policy.allows(address) or address == server


@given(networks, anything, anything)
def test_a_server_reaches_nothing_more_inner_than_itself(networks, server, address):
    named = AddressPolicy(networks=networks).named_by(server)
    if named.allows(address) and address != server:
        assert class_of(address) <= class_of(server) or named.lists(address)
        assert class_of(address) != LINK_LOCAL


@given(policies, anything)
def test_link_local_addresses_are_for_the_user(policy, address):
    if class_of(address) == LINK_LOCAL:
        assert policy.allows(address, ("host", 1)) == policy.anywhere


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (Origin(), "8.8.8.8 10.0.0.1 127.0.0.1 169.254.0.1"),
        (Origin("document"), "8.8.8.8 10.0.0.1 127.0.0.1"),
        (Origin("server", "127.0.0.1"), "8.8.8.8 10.0.0.1 127.0.0.1"),
        (Origin("server", "192.168.0.1"), "8.8.8.8 10.0.0.1"),
        (Origin("server", "fe80::1%eth0"), "8.8.8.8 10.0.0.1"),
        (Origin("server", "9.9.9.9"), "8.8.8.8"),
        (Origin("server"), "8.8.8.8"),
    ],
)
def test_origin_of_a_name_decides_which_addresses_it_reaches(origin, allowed):
    policy = policy_of(origin)
    asked = ("8.8.8.8", "10.0.0.1", "127.0.0.1", "169.254.0.1")
    assert " ".join(each for each in asked if policy.allows(each)) == allowed


def test_networks_that_the_user_lists_are_open_to_servers():
    policy = AddressPolicy(networks=parse_networks(["10.1.0.0/16", "fd00:1::/48"])).named_by("9.9.9.9")
    assert [policy.allows(each) for each in ("10.1.2.3", "::ffff:10.1.2.3", "fd00:1::7")] == [True] * 3
    assert [policy.allows(each) for each in ("10.2.2.3", "fd00:2::7", "127.0.0.1")] == [False] * 3
    everything = AddressPolicy(PUBLIC, parse_networks(["0.0.0.0/0", "::/0"]))
    assert not everything.allows("169.254.169.254")
    assert not everything.allows("fe80::1")


@pytest.mark.parametrize("text", ["169.254.0.0/16", "fe80::/64", "10.0.0.1/8", "host", "", 7, None])
def test_invalid_networks_cannot_be_listed(text):
    with pytest.raises(ValueError, match=r"."):
        parse_networks([text])


def test_the_server_of_a_name_is_allowed_where_it_was_opened():
    policy = AddressPolicy(PUBLIC, servers=frozenset({("dtn.example", 2811)}))
    assert policy.allows("10.0.0.1", ("dtn.example", 2811))
    assert not policy.allows("10.0.0.1", ("other.example", 2811))
    assert not policy.allows("169.254.0.1", ("dtn.example", 2811))
    assert not policy.named_by("9.9.9.9").allows("10.0.0.1", ("dtn.example", 2811))
    assert ANYWHERE.allows(str(IPv6Address("fe80::1")))
