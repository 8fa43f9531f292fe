"""Numbers, labels and foreign text."""

import pytest

from coalloc.util import human


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 bytes"), (999.7, "1.00 kB"), (9_995_000, "10.0 MB"), (99_960_000, "100 MB"), (2.5e21, "2500 EB")],
)
def test_sizes_keep_three_digits_across_units(count, shown):
    assert human.size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.997, "1.0 s"), (59.6, "1 min 00 s"), (3599.7, "1 h 00 min"), (90_000, "25 h 00 min")]
)
def test_durations_round_into_the_next_unit(seconds, shown):
    assert human.duration(seconds) == shown


def test_labels_distinguish_sources_of_one_host_and_hide_passwords():
    same = human.labels(["ftp://u:secret@h.example/a", "ftp://h.example/b", "http://other.example/a"])
    assert len(set(same)) == 3
    assert same[2] == "other.example"
    assert "secret" not in "".join(same)


def test_labels_of_addresses_without_a_host():
    assert human.labels(["file:///a/b", "x"]) == ("file:///a/b", "x")
