"""Hosts for which a certificate is valid."""

import pytest

from coalloc.engine.gridftp.gsi.identity import certificate_names, matches


def certificate(*common_names, alternatives=()):
    subject = ((("organizationName", "Grid"),), *(((("commonName", name)),) for name in common_names))
    return {"subject": subject, **({"subjectAltName": alternatives} if alternatives else {})}


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        (certificate("a.org"), ("a.org",)),
        (certificate("host/a.org"), ("a.org",)),
        (certificate("Grid Hosts", "gridftp/a.org"), ("a.org",)),
        (certificate("a.org", alternatives=(("DNS", "b.org"), ("DNS", "c.org"))), ("b.org", "c.org")),
        (certificate("a.org", alternatives=(("email", "x@b.org"),)), ("a.org",)),
        (certificate("a.org", alternatives=(("IP Address", "1.2.3.4"),)), ("1.2.3.4", "a.org")),
        ({}, ()),
    ],
)
def test_names(shown, names):
    assert certificate_names(shown) == names


@pytest.mark.parametrize(
    ("host", "name", "same"),
    [
        ("se1.example.org", "se1.example.org", True),
        ("SE1.example.org", "se1.EXAMPLE.org", True),
        ("se1.example.org.", "se1.example.org", True),
        ("se1.example.org", "*.example.org", True),
        ("a.se1.example.org", "*.example.org", False),
        ("example.org", "*.example.org", False),
        ("example.org", "*.org", False),
        ("se1.example.org", "*", False),
        ("se1.example.org", "se*.example.org", False),
        ("se1-eth0.example.org", "se1.example.org", False),  # Globus would; RFC 2818 does not
        ("se1.example.org.evil.com", "se1.example.org", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("127.0.0.1", "*.0.0.1", False),
        ("127.0.0.1", "localhost", False),
        ("localhost", "127.0.0.1", False),
    ],
)
def test_matches(host, name, same):
    assert matches(host, ("other.example", name)) is same


def test_no_name_matches_nothing():
    assert not matches("localhost", ())
