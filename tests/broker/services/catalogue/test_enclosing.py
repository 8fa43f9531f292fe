"""Collections that enclose a replica, in any spelling of its server and path. Pure."""

import socket
import time
from uuid import uuid4

import pytest

from broker.models.callers import Caller
from broker.models.catalogue import Endpoint
from broker.models.collections import AccessRule, Collection
from broker.services.catalogue.enclosing import Enclosing, Readable
from broker.services.catalogue.hosts import Hosts
from broker.storage.collections import CollectionFolder
from broker.storage.places import Placed
from broker.storage.registrations import ReplicaRegistration


def endpoint(url, prefix="/"):
    scheme, _, rest = url.partition("://")
    host, _, port = rest.rpartition(":") if not rest.endswith("]") and ":" in rest else (rest, "", "")
    return Endpoint(name="e", site="s", scheme=scheme, host=host, port=int(port) if port else None, prefix=prefix)


def folder(url, prefix="/", base="/", owner="ann", name="c"):
    made = {"id": uuid4(), "owner": owner, "created_at": time.time(), "name": name, "base": base}
    return CollectionFolder(Collection(**made, endpoint="e"), endpoint(url, prefix))


INSIDE = [
    ("gsiftp://dtn.example", "/data/priv", "/", "x"),
    ("gsiftp://dtn.example", "/", "/data/priv", "x"),
    ("gsiftp://dtn.example", "/data", "/priv/", "x"),
    ("gsiftp://dtn.example:2811", "/", "/data/priv", "x"),
    ("ftp://dtn.example", "/", "/data/priv", "x"),
    ("ftp://dtn.example:2812", "/", "/data/priv", "x"),
    ("https://dtn.example", "/", "/data/priv", "x"),
    ("gsiftp://DTN.Example.", "/", "/data/priv", "x"),
    ("gsiftp://dtn.example", "//data//priv", "/", "x"),
    ("gsiftp://dtn.example", "/data/priv/deep/", "/", "x"),
    ("gsiftp://dtn.example", "/", "/data/priv/deep", "//x"),
    ("gsiftp://dtn.example", "/~", "/", "x"),
    ("gsiftp://dtn.example", "/", "/~robot/priv", "x"),
    ("gsiftp://dtn.example", "/data/Priv", "/", "x"),
    ("gsiftp://dtn.example", "/DATA", "/PRIV", "x"),
]
OUTSIDE = [
    ("gsiftp://dtn.example", "/data", "/", "x"),
    ("gsiftp://dtn.example", "/data/private", "/", "x"),
    ("gsiftp://dtn.example", "/data/pri", "/", "v/x"),
    ("gsiftp://dtn.example", "/other/data/priv", "/", "x"),
    ("gsiftp://dtn.example", "/data/%70riv", "/", "x"),
    ("gsiftp://dtn.example.evil", "/data/priv", "/", "x"),
    ("gsiftp://evil.dtn.example", "/data/priv", "/", "x"),
    ("gsiftp://dtn.example", "/data/ priv", "/", "x"),
]


@pytest.mark.parametrize(
    ("inside", "location"), [*((True, each) for each in INSIDE), *((False, each) for each in OUTSIDE)]
)
def test_paths_inside_a_folder_are_recognized(inside, location):
    url, prefix, below, name = location
    enclosing = Enclosing([folder("gsiftp://dtn.example", "/data", "/priv")])
    path = f"{below.rstrip('/')}/{name}"
    assert bool(enclosing.around(endpoint(url, prefix), path)) is inside


@pytest.mark.parametrize(
    ("url", "inside"),
    [
        ("http://dtn.example/data/priv/x", ["/x"]),
        ("https://DTN.example.:8443/data/priv/x?y#z", ["/x"]),
        ("http://dtn.example/data/%70riv/x", ["/x"]),
        ("http://dtn.example/data/%2570riv/x", ["/x"]),
        ("http://dtn.example/data/priv;v=1/x", ["/x"]),
        ("http://dtn.example/open/../data/priv/x", ["/x"]),
        ("http://dtn.example/open/%2e%2e/data/priv/x", ["/x"]),
        ("http://dtn.example//data/./priv//x", ["/x"]),
        ("http://dtn.example/data/PRIV/x", ["/x"]),
        ("http://dtn.example/data\\priv\\x", ["/x"]),
        ("http://dtn.example/data/open//%2e%2e/%2e%2e/priv/x", ["/x"]),
        ("http://dtn.example/data/%70riv//%2e%2e/x", ["/../x", "/x"]),
        ("http://dtn.example/data/open%5c..;v=1%5cpriv/x", ["/x"]),
        ("http://dtn.example/data/a%2fb/%2e%2e/priv/x", ["/x"]),
        ("http://dtn.example/data/%252e%252e/../priv/x", ["/x"]),
        ("http://dtn.example/data/priv./x", ["/x"]),
        ("http://dtn.example/data/priv%20/x", ["/x"]),
        ("http://dtn.example/data/priv::$INDEX_ALLOCATION/x", ["/x"]),
        ("http://dtn.example/data/priv:$I30:$INDEX_ALLOCATION/x", ["/x"]),
        ("http://dtn.example/data/%ef%bd%90riv/x", ["/x"]),
        ("http://dtn.example/data/priv%00.txt/x", ["/"]),
        ("http://dtn.example/data/%c0%ae%c0%ae/priv/x", ["/"]),
        ("http://dtn.example/data/open/..%20/priv/x", ["/"]),
        ("http://dtn.example/data/priv%3f/x", ["/"]),
        (f"http://dtn.example/%{'25' * 9}64ata/priv/x", ["/x"]),
        (f"http://dtn.example/%{'25' * 300}41", ["/"]),
        (f"http://dtn.example/{'%61' * 2000}", ["/"]),
        ("http://dtn.example/~ann/x", ["/"]),
        ("http://dtn.example/data/private/x", []),
        ("http://dtn.example/data/x", []),
        ("http://dtn.example/data/priv/../open/x", ["/../open/x"]),
        ("http://dtn.example/data/priv.d/x", []),
        ("http://dtn.example/data/%20priv/x", []),
        ("http://dtn.example/data/open/run%20%231;2/x", []),
        ("http://other.example/data/priv/x", []),
        ("http:///data/priv/x", []),
    ],
)
def test_a_url_is_inside_a_folder_if_any_reading_of_it_is(url, inside):
    enclosing = Enclosing([folder("gsiftp://dtn.example", "/data", "/priv")])
    assert {each.path for each in enclosing.around_url(url)} >= set(inside)
    assert bool(inside) is bool(enclosing.around_url(url))


@pytest.mark.parametrize(("one", "other"), [("caf\u00e9", "cafe\u0301"), ("cafe\u0301", "caf\u00e9")])
def test_forms_of_unicode_are_one_folder(one, other):
    for prefix, base in (("/", f"/{one}"), (f"/{one}", "/")):
        enclosing = Enclosing([folder("ftp://dtn.example", prefix, base)])
        for at, path in (("/", f"/{other}/x"), (f"/{other}", "/x")):
            (around,) = enclosing.around(endpoint("ftp://dtn.example", at), path)
            assert around.path == "/x"


HOSTS = [
    ("[2001:DB8::1]", "[2001:db8:0:0::1]"),
    ("[::ffff:192.0.2.1]", "192.0.2.1"),
    ("0xc0000201", "192.0.2.1"),
    ("192.0.513", "192.0.2.1"),
    ("3221225985", "192.0.2.1"),
    ("[64:ff9b::192.0.2.1]", "192.0.2.1"),
    ("127.1", "127.0.0.1"),
    ("127.0.0.2", "127.0.0.1"),
    ("[::1]", "127.0.0.1"),
    ("localhost", "127.0.0.1"),
    ("localhost.", "[::1]"),
    ("any.localhost", "localhost"),
    ("[::ffff:127.0.0.1]", "localhost"),
]


@pytest.mark.parametrize(("one", "other"), [*HOSTS, *((b, a) for a, b in HOSTS)])
def test_a_host_has_many_spellings(one, other):
    enclosing = Enclosing([folder(f"ftp://{one}", "/data")])
    assert enclosing.around(endpoint(f"ftp://{other}"), "/data/x")


def test_names_that_lead_to_the_same_address_are_one_server():
    plain = Enclosing([folder("ftp://dtn.example", "/data")])
    known = {"dtn.example": frozenset({"192.0.2.1", "2001:db8::1"}), "alias.example": frozenset({"192.0.2.1"})}
    by_address = plain.with_addresses({**known, "other.example": frozenset({"192.0.2.2"})})
    for host, inside in (
        ("alias.example", True),
        ("192.0.2.1", True),
        ("[2001:DB8::1]", True),
        ("other.example", False),
    ):
        assert not plain.around(endpoint(f"ftp://{host}"), "/data/x")
        assert bool(by_address.around(endpoint(f"ftp://{host}"), "/data/x")) is inside


def test_a_replica_at_a_web_server_is_where_that_may_read_it():
    enclosing = Enclosing([folder("gsiftp://dtn.example", "/data", "/priv")])
    for spelling in ("/data/priv;v=1/x", "/data/priv./x", "/data/a%2f..%2fpriv/x", "/data/%70riv/x"):
        for prefix, path in (("/", spelling), (spelling.rpartition("/")[0], "x")):
            assert enclosing.around(endpoint("http://dtn.example", prefix), path)
            assert enclosing.near(endpoint("http://dtn.example", prefix))
    assert not enclosing.around(endpoint("http://dtn.example"), "/data/%70rivate/x")


def test_a_host_that_cannot_be_looked_up_may_be_any_server():
    plain = Enclosing([folder("ftp://dtn.example", "/data")])
    known = plain.with_addresses({"dtn.example": {"192.0.2.1"}, "other.example": {"192.0.2.2"}})
    assert known.around(endpoint("ftp://lost.example"), "/data/x")
    assert not known.around(endpoint("ftp://lost.example"), "/open/x")
    assert not known.around(endpoint("ftp://other.example"), "/data/x")
    assert not known.around(endpoint("ftp://192.0.2.3"), "/data/x")
    lost = plain.with_addresses({"other.example": {"192.0.2.2"}})
    assert lost.around(endpoint("ftp://dtn.example"), "/data/x")
    assert not lost.around(endpoint("ftp://other.example"), "/data/x")


async def test_names_are_looked_up():
    assert await Hosts().addresses(["localhost", "127.1", "192.0.2.1", "[::1]", "No.Such.Host.Invalid."]) == {}
    here = socket.gethostname()
    known = {each[4][0] for each in socket.getaddrinfo(here, None)}
    found = await Hosts().addresses([here])
    assert {name: set(addresses) for name, addresses in found.items()} == {here.lower(): known}


def rule(path, principal="eve", permissions="r"):
    return AccessRule(id=uuid4(), principal_type="identity", principal=principal, path=path, permissions=permissions)


EVE, ANN = Caller(subject="eve", role="curator"), Caller(subject="ann", role="reader")
NOT_SAID = ReplicaRegistration()


def readable(caller, *folders, **rules):
    by_id = {str(each.collection.id): rules.get(each.collection.name, []) for each in folders}
    return Readable(caller, Enclosing(folders), by_id)


def opens(readable, path, registration=NOT_SAID, moves=0):
    at = Placed(1, endpoint("ftp://dtn.example"), None, moves=moves)
    return readable.opens(at, "cms:x", path, registration)


def test_a_replica_is_shown_only_to_readers_of_its_path():
    private = folder("ftp://dtn.example", "/data")
    assert opens(readable(EVE, private), "/elsewhere/x")
    assert not opens(readable(EVE, private), "/data/x")
    assert opens(readable(ANN, private), "/data/x")
    assert opens(readable(Caller(subject="root", role="admin"), private), "/data/x")
    some = readable(EVE, private, c=[rule("/pub/")])
    assert opens(some, "/data/pub/x")
    assert not opens(some, "/data/x")
    assert not opens(some, "/data/publisher/x")
    assert not opens(some, "/~/pub/x")
    assert not opens(some, "/~")
    everything = readable(EVE, private, c=[rule("/")])
    assert opens(everything, "/data/x")
    assert opens(everything, "/~/x")


def test_each_of_several_collections_counts():
    outer = folder("ftp://dtn.example", "/", name="outer", owner="ann")
    inner = folder("ftp://dtn.example", "/data", name="inner", owner="bob")
    both = {"outer": [rule("/")], "inner": [rule("/")]}
    assert opens(readable(EVE, outer, inner, **both), "/data/x")
    for name in both:
        assert not opens(readable(EVE, outer, inner, **{name: both[name]}), "/data/x")
    one = readable(EVE, outer, inner)
    assert not opens(one, "/data/x", ReplicaRegistration("ann"))
    assert not opens(one, "/data/x", ReplicaRegistration("bob"))
    assert opens(one, "/x", ReplicaRegistration("ann"))
    assert opens(one, "/data/x", ReplicaRegistration("root", admin=True))


def test_a_registration_counts_where_the_endpoint_was():
    one = readable(EVE, folder("ftp://dtn.example", "/data"))
    for by in (ReplicaRegistration("ann", moves=3), ReplicaRegistration("root", admin=True, moves=3)):
        assert opens(one, "/data/x", by, moves=3)
        assert not opens(one, "/data/x", by, moves=4)
        assert not opens(one, "/data/x", by, moves=2)
    assert not opens(one, "/data/x", ReplicaRegistration("eve", moves=3), moves=3)
    assert not opens(one, "/data/x", ReplicaRegistration("Ann", moves=3), moves=3)
