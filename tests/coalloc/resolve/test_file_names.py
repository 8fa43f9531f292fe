"""File names: those from URLs are made safe, those from documents are checked."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.resolve import file_names


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("ftp://h/a/b.dat", "b.dat"),
        ("ftp://h/%C3%A9t%C3%A9%202.nc", "été 2.nc"),
        ("ftp://h/a?b#c", "a?b#c"),
        ("http://h/a.dat?version=/2#top", "a.dat"),
        ("http://h", "download"),
        ("http://h/dir/", "download"),
        ("http://h/a/..", "download"),
        ("http://h/%2e%2e", "download"),
        ("http://h/..%2F..%2Fetc%2Fpasswd", ".._.._etc_passwd"),
        ("http://h/a%5Cb%00c%0Ad%1B[31m", "a_b_c_d_[31m"),
        ("http://h/gpj.%E2%80%AEexe", "gpj._exe"),
        ("http://h/%FF.dat", "\N{REPLACEMENT CHARACTER}.dat"),
        ("ftp://h/-rf", "-rf"),
    ],
)
def test_the_name_of_a_url(url, name):
    assert file_names.from_url(url) == name
    assert file_names.why_unsafe(name) is None


@given(st.text(), st.sampled_from(["ftp", "http"]))
def test_whatever_the_url_its_name_stays_in_the_directory(path, scheme):
    name = file_names.from_url(f"{scheme}://h/{path}")
    assert os.path.normpath(f"/some/directory/{name}") == f"/some/directory/{name}"
    assert os.path.dirname(f"/some/directory/{name}") == "/some/directory"  # noqa: PTH120
    name.encode()


@pytest.mark.parametrize(
    "name",
    [
        *("", "/etc/passwd", "C:/x", "..", "../x", "a/../x", "a/..", "./x", "a//b", "a/", "."),
        *("a\\b", "a\0", "a\nb", "a\x1b", "x\u202ey"),
        *("x" * 4097, "a/" * 101 + "x"),
    ],
)
def test_unsafe_names(name):
    assert file_names.why_unsafe(name)


@pytest.mark.parametrize(
    "name",
    ["x", "a/b/c", "..x", "x..", "a:b", ".hidden", "ünï cödé", "x.coget", "x.coget/journal", "-x", "a/" * 100 + "x"],
)
def test_safe_names(name):
    assert file_names.why_unsafe(name) is None
