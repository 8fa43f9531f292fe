"""Rates and deadlines that nobody can have, through every function that takes them."""

from math import inf, nan

import pytest

from coalloc import api
from coalloc.errors import UsageError
from coalloc.model.promises import Deadline, ReadingRate

URL = "ftp://127.0.0.1:9/x"
"""A server that refuses connections: these requests are refused before it is asked."""
SOON = 2e9


async def downloaded(request: api.Request) -> None:
    await api.download(request)


async def read(request: api.Request) -> None:
    async for _ in api.stream(request):
        pass


async def planned(request: api.Request) -> None:
    await api.plan(request)


@pytest.mark.parametrize("use", [downloaded, read, planned])
@pytest.mark.parametrize(
    "deadline",
    [
        *(Deadline(at) for at in (nan, inf, -inf, -1.0, 1e300)),
        *(Deadline(SOON, sure) for sure in (nan, inf, -inf, -1.0, 0.0, 0.4, 1.0, 95.0)),
    ],
)
async def test_a_deadline_that_is_none_is_a_mistake(use, deadline, tmp_path):
    with pytest.raises(UsageError, match="deadline"):
        await use(api.Request((URL,), str(tmp_path / "x"), deadline=deadline))


@pytest.mark.parametrize(
    "rate",
    [
        *(ReadingRate(rate) for rate in (nan, inf, -inf, -1.0, 0.0, 0.5, 2.0**63, 1e300)),
        *(ReadingRate(1e6, share) for share in (nan, inf, -inf, -1.0, 0.0, 0.4, 1.0, 95.0)),
    ],
)
async def test_a_rate_that_is_none_is_a_mistake(rate):
    with pytest.raises(UsageError, match="cannot be promised"):
        async for _ in api.stream(api.Request((URL,)), rate=rate):
            pass
