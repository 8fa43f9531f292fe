"""Objects of Pelican federations: their URLs, what a director answers, and downloads from several caches."""

import json
from random import Random

import pytest

from coalloc.api import check_servers, download, download_directory
from coalloc.download.request import Request
from coalloc.engine.base import EngineOptions
from coalloc.errors import (
    NoSuchFile,
    NotAllowed,
    NothingToFetchFrom,
    PermissionRefused,
    ServerBusy,
    ServerSays,
    Unreachable,
    Unsupported,
    UsageError,
)
from coalloc.model.replicas import Federation, Origin, Replica, ReplicaSet
from coalloc.resolve import resolve
from coalloc.resolve.federation_answers import MOST_CACHES, ObjectURL, caches, federation_of, parse
from coalloc.resolve.federation_lister import FederationLister
from coalloc.util.addresses import AddressClass
from coalloc.util.dialer import DirectDialer
from tests.support.apache import Apache
from tests.support.federation import federation_server
from tests.support.fetching import options
from tests.support.listening import reserved
from tests.support.nginx import Nginx
from tests.support.web import answer, ranges, redirect, web_server

PATH = "/ns/data.bin"
CONTENT = Random("object").randbytes(6_000_000)
ISSUER = "https://issuer.example/ns"
PROTECTED = {
    "X-Pelican-Namespace": "namespace=/ns, require-token=true, collections-url=https://origin.example:8443",
    "X-Pelican-Authorization": f"issuer={ISSUER}",
    "X-Pelican-Token-Generation": f"issuer={ISSUER}, max-scope-depth=3, strategy=OAuth2",
}


@pytest.fixture
def federation(grid, monkeypatch):
    """A federation with no caches yet, whose certificate is trusted."""
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    monkeypatch.setattr("coalloc.resolve.pelican._documents", {})  # an earlier test may have had the same port
    with federation_server(grid.localhost) as server:
        yield server


@pytest.fixture
def start_cache(grid, tmp_path):
    """`start_cache(name, more)` starts a cache that has an object at PATH, and returns its URL."""
    started = []

    def start(name, more=""):
        root = tmp_path / name
        (root / "ns").mkdir(parents=True)
        (root / "ns/data.bin").write_bytes(CONTENT)
        certificate = (grid.localhost.certificate, grid.localhost.key)
        started.append(Nginx(root, tmp_path / f"run-{name}", certificate=certificate, more=more))
        return started[-1].url("").rstrip("/")

    yield start
    for server in started:
        server.close()


async def no_engine(url, limit):
    raise AssertionError(f"{url} was asked for")


async def resolved(*sources):
    (found,) = await resolve(sources, no_engine)
    return found.file


async def entries_at(url):
    return [entry async for group in FederationLister(options()).list(url) for entry in group]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("pelican://fed.example/ns/a/x", ("fed.example", "/ns/a/x", "")),
        ("pelican://[::1]:8444/ns/x", ("[::1]:8444", "/ns/x", "")),
        ("osdf:///ns/x?directread", ("osg-htc.org", "/ns/x", "directread")),
        ("osdf://ns/x", ("osg-htc.org", "/ns/x", "")),
        ("OSDF:///ns/x?skipstat&prefercached", ("osg-htc.org", "/ns/x", "skipstat&prefercached")),
        ("stash:////ns/a b%2Fc", ("osg-htc.org", "/ns/a%20b%2Fc", "")),
    ],
)
def test_urls_are_understood_as_by_the_client_of_pelican(url, expected):
    assert parse(url) == ObjectURL(*expected)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("pelican:///ns/x", "names no federation"),
        ("pelican://ann:secret@fed.example/ns/x", "names no federation"),
        ("osdf://ann:secret@ns/x", "names no federation"),
        ("pelican://fed.example", "names no object"),
        ("osdf:///", "names no object"),
        ("osdf:///ns/x?recursive", "'recursive' is not supported"),
        ("osdf:///ns/x?pack=auto", "'pack' is not supported"),
        ("osdf:///ns/x?directread&directread", "'directread' is given twice"),
        ("osdf:///ns/x?directread&prefercached", "both directread and prefercached"),
    ],
)
def test_urls_that_mean_nothing_are_refused(url, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        parse(url)
    assert "secret" not in str(caught.value)


def test_links_are_read_as_rfc_8288_writes_them():
    links = [
        '<https://b/x,y;z>;pri=2;rel="duplicate"',
        '<https://c/x>; title="a, <https://evil/>; b"; rel="next duplicate"; depth=3',
        "<https://a/x>; REL=Duplicate; PRI=1",
        '<https://d/x>; rel="describedby"; pri=0',
        "<https://e/x>",
        '<https://b/x,y;z>; rel="duplicate"; pri=9',
    ]
    expected = [("https://a/x", 1), ("https://b/x,y;z", 2), ("https://c/x", None)]
    assert caches({"link": ", ".join(links)}) == expected


def test_no_more_caches_are_used_than_a_limit():
    links = ", ".join(f'<https://a/{i}>; rel="duplicate"; pri={i}' for i in range(10_000))
    assert [pri for _, pri in caches({"link": links})] == list(range(MOST_CACHES))


def test_issuers_of_tokens_are_read_from_all_headers():
    headers = {
        "x-pelican-namespace": "namespace=/ns, require-token=TRUE",
        "x-pelican-authorization": f"issuer={ISSUER}, issuer=https://other.example",
        "x-pelican-token-generation": f"issuer={ISSUER}, max-scope-depth=3",
    }
    expected = Federation("osg-htc.org", True, (ISSUER, "https://other.example"))
    assert federation_of(parse("osdf:///ns/x"), headers) == expected


async def test_an_object_comes_from_all_caches_that_the_director_names(federation, start_cache, tmp_path):
    federation.servers = [start_cache(name, "limit_rate 1m;") for name in ("near", "far")]
    (report,) = await download(Request(federation.url(PATH), output=tmp_path))
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert [source.url for source in report.sources] == [f"{server}{PATH}" for server in federation.servers]
    assert all(source.bytes > 0 for source in report.sources)


async def test_a_dead_cache_does_not_hurt(federation, start_cache, tmp_path):
    with reserved("127.0.0.1") as dead:
        federation.servers = [f"https://127.0.0.1:{dead.getsockname()[1]}", start_cache("alive")]
        await download(Request(federation.url(PATH), output=tmp_path))
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


async def test_the_caches_of_an_object_are_checked(federation, start_cache):
    with reserved("127.0.0.1") as dead:
        federation.servers = [f"https://127.0.0.1:{dead.getsockname()[1]}", start_cache("alive")]
        found, absent = await check_servers([federation.url(PATH), federation.url("/ns/absent")])
        federation.servers = federation.servers[:1]
        (silent,) = await check_servers([federation.url(PATH)])
    assert (found.ok, found.size, found.features) == (True, len(CONTENT), ("1 of 2 caches answer",))
    assert (absent.ok, type(absent.error)) == (False, NoSuchFile)
    assert (silent.ok, type(silent.error)) == (False, Unreachable)


@pytest.mark.usefixtures("late_answers")
async def test_a_cache_with_an_object_of_another_size_is_never_believed(federation, start_cache, tmp_path):
    federation.servers = [start_cache("right"), start_cache("wrong")]
    (tmp_path / "wrong/ns/data.bin").write_bytes(b"short")
    with pytest.raises(Exception, match="different files"):
        await download(Request(federation.url(PATH), output=tmp_path))
    assert not (tmp_path / "data.bin").exists()


async def test_an_object_is_fetched_together_with_other_urls(federation, start_cache, tmp_path):
    mirror = start_cache("mirror") + PATH
    federation.servers = [start_cache("cache")]
    file = await resolved(mirror, federation.url(PATH), federation.url("/ns/absent"))
    assert [replica.url for replica in file.replicas] == [mirror, federation.servers[0] + PATH]
    assert file.replicas[0] == Replica(mirror)
    assert [(url, "not found" in why) for url, why in file.left_out] == [(federation.url("/ns/absent"), True)]


async def test_a_missing_token_is_named_with_its_issuer(federation, start_cache, tmp_path):
    federation.servers = [start_cache(name, "location / { return 403; }") for name in ("a", "b")]
    federation.headers = PROTECTED
    with pytest.raises(NotAllowed, match=f"needs a token from {ISSUER}") as caught:
        await download(Request(federation.url(PATH), output=tmp_path))
    assert f"get a token for {federation.host} from {ISSUER}" in caught.value.remedy
    federation.status = 403
    with pytest.raises(PermissionRefused, match=f"needs a token from {ISSUER}"):
        await resolved(federation.url(PATH))


async def test_caches_may_get_the_token_that_the_user_has_for_the_federation(federation):
    federation.servers, federation.headers = ["https://cache.example"], PROTECTED
    (replica,) = (await resolved(federation.url(PATH))).replicas
    stated = Federation(federation.host, True, (ISSUER,))
    assert replica == Replica(f"https://cache.example{PATH}", 1, origin=Origin("server", "127.0.0.1", stated))
    assert EngineOptions(DirectDialer()).named(replica.origin).federation == stated


async def test_the_token_goes_to_the_caches_and_to_no_server_behind_them(federation, grid, tmp_path, monkeypatch):
    """One cache redirects to a thief."""
    monkeypatch.setenv("BEARER_TOKEN", "t0ken")
    content = ranges(CONTENT)

    def guarded(request):
        return content(request) if request.header("Authorization") == "Bearer t0ken" else answer("403 Forbidden")

    async with (
        web_server(content, grid) as thief,
        web_server(guarded, grid) as cache,
        web_server(lambda request: redirect(f"{thief.url}{request.path}"), grid) as leading,
    ):
        federation.servers = [cache.url, leading.url]
        federation.headers = PROTECTED
        await download(Request(federation.url(PATH), output=tmp_path))
        assert (tmp_path / "data.bin").read_bytes() == CONTENT
        assert set(leading.all("Authorization")) == {"Bearer t0ken"}
        assert thief.heard
        assert set(thief.all("Authorization")) == {None}
        federation.headers = {}
        for server in (cache, leading):
            server.heard.clear()
        await download(Request(federation.url(PATH), output=tmp_path / "again"))
        assert {*cache.all("Authorization"), *leading.all("Authorization")} == {None}


async def test_caches_may_not_be_more_internal_than_the_federation(federation):
    federation.servers = ["https://cache.example"]
    (replica,) = (await resolved(federation.url(PATH))).replicas
    policy = EngineOptions(DirectDialer()).named(replica.origin).dialer.policy
    assert policy.innermost == AddressClass.LOOPBACK
    assert not policy.allows("169.254.169.254")


async def test_caches_whose_bytes_could_be_changed_are_left_out(federation):
    federation.servers = [
        "http://cache.example",
        "file:///etc",
        "root://cache.example",
        "https://",
        "https://-oX",
        "nothing",
        "http://127.0.0.1:8000",
        "https://cache.example",
    ]
    file = await resolved(federation.url(PATH))
    assert [replica.url for replica in file.replicas] == [server + PATH for server in federation.servers[-2:]]
    assert len(file.left_out) == 6


async def test_it_is_said_when_no_cache_may_be_used(federation, tmp_path):
    federation.servers = ["http://cache.example"]
    with pytest.raises(NothingToFetchFrom, match="is not https"):
        await download(Request(federation.url(PATH), output=tmp_path))


async def test_parameters_go_to_the_director_as_they_are(federation):
    federation.servers = ["https://origin.example"]
    file = await resolved(federation.url(PATH) + "?directread")
    assert federation.asked[-1] == f"GET {PATH}?directread"
    assert (file.name, file.replicas[0].url) == ("data.bin", f"https://origin.example{PATH}")


async def test_the_description_of_a_federation_is_asked_for_once(federation):
    federation.servers = ["https://cache.example"]
    for _ in range(3):
        await resolved(federation.url(PATH))
    assert federation.asked == ["GET /.well-known/pelican-configuration", *[f"GET {PATH}"] * 3]


async def test_a_file_that_is_known_already_gets_its_caches(federation, start_cache, tmp_path):
    federation.servers = [start_cache("cache")]
    known = ReplicaSet("known", (Replica(federation.url(PATH)),))
    await download(Request((), file=known, output=tmp_path))
    assert (tmp_path / "known").read_bytes() == CONTENT


async def test_a_metalink_must_be_alone(federation, tmp_path):
    with pytest.raises(UsageError, match="is not a URL"):
        await resolved(federation.url(PATH), str(tmp_path / "x.meta4"))


async def test_a_directory_is_listed_by_the_origin(federation, tmp_path):
    with Apache(tmp_path / "root", tmp_path / "run") as origin:
        (tmp_path / "root/ns/sub").mkdir(parents=True)
        (tmp_path / "root/ns/a b").write_bytes(b"1234567")
        federation.objects = ["/ns/"]
        federation.headers = {"X-Pelican-Namespace": f"namespace=/ns, collections-url={origin.url('', 'http')}"}
        entries = await entries_at(federation.url("/ns/"))
    assert {(entry.name, entry.kind, entry.size) for entry in entries} == {("a b", "file", 7), ("sub", "dir", None)}
    assert federation.asked[-1] == "PROPFIND /ns/"


async def test_a_directory_is_fetched_from_the_caches(federation, start_cache, tmp_path):
    with Apache(tmp_path / "root", tmp_path / "run") as origin:
        (tmp_path / "root/ns").mkdir(parents=True)
        (tmp_path / "root/ns/data.bin").write_bytes(CONTENT)
        federation.servers, federation.objects = [start_cache("a"), start_cache("b")], ["/ns/", PATH]
        federation.headers = {"X-Pelican-Namespace": f"namespace=/ns, collections-url={origin.url('', 'http')}"}
        (tmp_path / "out").mkdir()
        done = []
        await download_directory(Request(federation.url("/ns"), output=tmp_path / "out"), done.append)
    assert (tmp_path / "out/data.bin").read_bytes() == CONTENT
    (result,) = done
    assert len(result.report.sources) == 2


@pytest.mark.parametrize("server", ["", ", collections-url=http://origin.example", ", collections-url=https://[::1"])
async def test_a_directory_that_nothing_lists_is_named(federation, server):
    federation.objects = ["/ns/"]
    federation.headers = {"X-Pelican-Namespace": f"namespace=/ns{server}"}
    with pytest.raises(Unsupported, match="/ns/: the federation lists no such directory"):
        await entries_at(federation.url("/ns/"))
    with pytest.raises(NoSuchFile, match="/absent/: the director"):
        await entries_at(federation.url("/absent/"))


async def test_without_links_the_target_of_the_redirect_is_used(federation):
    federation.servers = ["https://cache.example"]
    federation.headers = {"Link": "nothing"}
    file = await resolved(federation.url(PATH))
    assert [replica.url for replica in file.replicas] == [f"https://cache.example{PATH}"]


async def test_a_federation_without_a_director_serves_its_objects_itself(federation):
    federation.document = b'{"director_endpoint": ""}'
    (replica,) = (await resolved(federation.url(PATH))).replicas
    assert (replica.url, replica.origin.kind) == (f"https://{federation.host}{PATH}", "user")


async def test_an_object_without_a_server_is_named(federation):
    with pytest.raises(NoSuchFile, match="/ns/absent: the director of the federation says: Object not found at any"):
        await resolved(federation.url("/ns/absent"))


@pytest.mark.parametrize(("status", "error"), [(200, ServerSays), (429, ServerBusy), (500, ServerSays)])
async def test_a_director_that_names_no_cache_is_an_error(federation, status, error):
    federation.status = status
    with pytest.raises(error):
        await resolved(federation.url(PATH))


@pytest.mark.parametrize(
    "document",
    [
        b"<html>",
        b"[]",
        b"[" * 60_000,
        json.dumps({"director_endpoint": 7}).encode(),
        json.dumps({"director_endpoint": "http://director.example"}).encode(),
        json.dumps({"director_endpoint": "file:///etc/passwd"}).encode(),
        json.dumps({"director_endpoint": "https://[::1/"}).encode(),
    ],
)
async def test_a_wrong_description_of_a_federation_is_refused(federation, document):
    federation.document = document
    with pytest.raises(Unsupported, match="is not the description of a federation"):
        await resolved(federation.url(PATH))


async def test_an_endless_description_of_a_federation_is_refused(federation):
    federation.document = b" " * 100_000 + b"{}"
    with pytest.raises(Unsupported, match="is not the description of a federation"):
        await resolved(federation.url(PATH))
