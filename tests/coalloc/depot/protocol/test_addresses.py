import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coalloc.depot.protocol.addresses import DestinationPattern, HostPort


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a:", ":1", "a:0", "a:65536", "a:-1", "a:1x", "a b:1", "a..b:1", "-a:1", "::1:80"),
        *("[::1%eth0]:80", "a:\u0661"),
        *("[a:1", "a\n:1", "a:1\n", "a/b:1", "user@a:1", f"{'a' * 64}:1", f"{'a.' * 127}a:1", "bücher.example:1"),
    ],
)
def test_other_text_is_no_address(text: str):
    with pytest.raises(ValueError, match=r"."):
        HostPort.parse(text)


@pytest.mark.parametrize("text", ["a:1", "192.0.2.1:65535", "[2001:db8::1]:80", "a_b.example:4000", "xn--bcher-kva:1"])
def test_an_address_is_shown_as_it_is_parsed(text: str):
    assert str(HostPort.parse(text)) == text


def test_names_that_are_the_same_are_equal():
    assert HostPort.parse("A.Example.:1") == HostPort.parse("a.example:1")


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:2-1", "a:0-5", "a:1-65536", "10.0.0.1/8", "[a", "a:1:2", "a:b"])
def test_other_text_is_no_pattern(text: str):
    with pytest.raises(ValueError, match=r"."):
        DestinationPattern.parse(text)


PATTERNS = [
    *("a.example", "a.example:80", "a.example:80-90", "192.0.2.0/24", "192.0.2.0/24:2811"),
    *("[2001:db8::/32]:443", "192.0.2.1/32:1-1000", "[2001:db8::/32]"),
]


@pytest.mark.parametrize("text", PATTERNS)
def test_a_pattern_is_shown_as_it_is_parsed(text: str):
    assert str(DestinationPattern.parse(text)) == text


def test_a_pattern_covers_its_ports_and_addresses():
    pattern = DestinationPattern.parse("192.0.2.0/24:80-90")
    assert [pattern.covers_port(port) for port in (79, 80, 90, 91)] == [False, True, True, False]
    assert [pattern.covers_address(each) for each in ("192.0.2.9", "192.0.3.1")] == [True, False]
    assert pattern.covers_address("::ffff:192.0.2.9")
    assert not DestinationPattern.parse("::/0").covers_address("::ffff:192.0.2.9")
    assert not DestinationPattern.parse("a.example").covers_address("192.0.2.9")


@given(st.text(max_size=40))
@example("[")
@example("1/1/1")
@example("::/")
def test_any_text_is_a_pattern_or_refused(text: str):
    for parse in (HostPort.parse, DestinationPattern.parse):
        try:
            known = parse(text)
        except ValueError:
            continue
        assert parse(str(known)) == known
