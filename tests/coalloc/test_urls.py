"""URLs as people may see them."""

import doctest

import pytest

from coalloc import urls


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(urls).failed == 0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://host/a@b:c", "ftp://host/a@b:c"),
        ("ftp://ann@host/x", "ftp://ann@host/x"),
        ("ftp://ann:p@ss@[::1]:21/x", "ftp://ann@[::1]:21/x"),
        ("ftp://a:secret@[::1/x", "ftp://[::1/x"),
        ("https://token@host/x", "https://host/x"),
        ("HTTPS://ann:secret@host:1/x?y", "https://host:1/x?y"),
        ("", ""),
    ],
)
def test_no_password_is_shown(url, shown):
    assert urls.redact(url) == shown
