"""The replicas that a server names: their origin, number and order."""

import pytest

from coalloc.engine.http.links import WebLink
from coalloc.model.replicas import NamedBy, Origin
from coalloc.resolve.duplicates import MOST, with_duplicates
from coalloc.resolve.http_documents import HeadAnswer
from coalloc.resolve.replica_urls import replica_set
from coalloc.util.dialer import DirectDialer

BY = NamedBy("http://a/d/x", redirecting=False, secure=False)
FILE = replica_set(["http://a/d/x"])


async def found(*links, targets=(), address="192.0.2.1"):
    answer = HeadAnswer(False, tuple((link, BY) for link in links), targets, (), address)
    return await with_duplicates(FILE, answer, (DirectDialer(),))


def duplicate(url, priority=None):
    return WebLink(url, frozenset({"duplicate"}), "", priority, "de")


@pytest.mark.parametrize("address", ["192.0.2.1", None])
async def test_named_replicas_are_reached_only_as_their_server_may_name_them(address):
    first, second = (await found(duplicate("http://10.0.0.1/x", 3), address=address)).replicas
    assert first == FILE.replicas[0]
    assert (second.origin, second.named_by) == (Origin("server", address), BY)
    assert (second.priority, second.location) == (3, "de")


async def test_known_places_are_not_named_again():
    places = ["http://a:80/d/x", "http://A/d/x?token=1", "http://a/d/x#part", "https://b/y", "https://b:443/y"]
    file = await found(*map(duplicate, places), targets=("https://b/y?token=2",))
    assert file == FILE


async def test_the_best_of_many_are_used():
    file = await found(*(duplicate(f"http://h{number}/x", 1000 - number) for number in range(100)))
    assert [replica.url for replica in file.replicas] == ["http://a/d/x"] + [f"http://h{99 - i}/x" for i in range(MOST)]


async def test_other_schemes_are_left_out():
    file = await found(*(duplicate(url) for url in ["file:///etc/passwd", "s3://a/x", "http:///x", "gsiftp://h/x"]))
    assert file.replicas == FILE.replicas
    assert len(file.left_out) == 4
    assert "certificate" in dict(file.left_out)["gsiftp://h/x"]
