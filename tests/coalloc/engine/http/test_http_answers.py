"""Headers and statuses of HTTP answers."""

import pytest

from coalloc.engine.http import answers
from coalloc.errors import BUSY_SECONDS, NoSuchFile, PermissionRefused, ServerBusy, ServerSays, Unsupported


@pytest.mark.parametrize("header", ["", "bytes */10", "bytes 0-1", "lines 0-1/2", "bytes 0-1/x"])
def test_places_that_make_no_sense(header):
    assert answers.content_range({"content-range": header}) is None


def test_a_place_in_a_file_of_unknown_size():
    assert answers.content_range({"content-range": "bytes 5-5/*"}) == (5, 6, None)


def test_only_strong_validators_are_conditions():
    assert answers.condition('"tag"') == {"If-Range": '"tag"'}
    assert answers.condition('W/"tag"') == {}
    assert answers.condition(None) == {}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, PermissionRefused),
        (403, PermissionRefused),
        (407, PermissionRefused),
        (404, NoSuchFile),
        (410, NoSuchFile),
        (416, ServerSays),
        (429, ServerBusy),
        (500, ServerSays),
        (501, Unsupported),
    ],
)
def test_refusals(status, kind):
    error = answers.refusal(status, "Why", {}, "http://host/x", str)
    assert type(error) is kind
    assert error.message == f"http://host/x: the server says {status} Why"
    assert error.remedy


def test_a_refusal_for_some_time():
    error = answers.refusal(503, "Busy", {"retry-after": "7"}, "http://host/x", str)
    assert "Retry-After: 7" in error.message
    assert error.retry_after == 7
    assert not error.permanent


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "0"}, 0),
        ({"retry-after": " 12 "}, 12),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1.5"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:30 GMT", "date": "Sat, 21 Nov 2026 12:00:00 GMT"}, 30),
        ({"retry-after": "Saturday, 21-Nov-26 12:00:30 GMT", "date": "Sat, 21 Nov 2026 12:00:00 GMT"}, 30),
        ({"retry-after": "Sat Nov 21 12:00:30 2026", "date": "Sat, 21 Nov 2026 12:00:00 GMT"}, 30),
        ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT", "date": "Sat, 21 Nov 2026 12:00:00 GMT"}, 0),
        ({"retry-after": "Sat, 21 Nov 1998 12:00:30 GMT"}, 0),
    ],
)
def test_retry_after_header_gives_seconds_or_none(headers, seconds):
    assert answers.retry_after(headers) == seconds


def test_busy_server_without_retry_after_gets_the_default_pause():
    assert answers.refusal(503, "Busy", {}, "http://host/x", str).retry_after == BUSY_SECONDS
