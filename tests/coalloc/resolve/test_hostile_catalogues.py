"""Catalogues that lie, thieves that they lead to, and answers without end or sense."""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coalloc import api
from coalloc.cli.main import invoke
from coalloc.config import catalogue_settings
from coalloc.credentials import Credentials
from coalloc.errors import CoallocError, NotAllowed, TooMuch, UsageError
from coalloc.model.replicas import Origin, ReplicaSet
from coalloc.resolve import resolve
from coalloc.resolve.catalogues import documents
from coalloc.resolve.catalogues.merging import merged
from coalloc.resolve.file_list import ListedFile
from coalloc.resolve.file_names import why_unsafe
from coalloc.util.dialer import DirectDialer
from tests.support.catalogues import DOI, ID, MD5, SEARCH, drs_object, zenodo
from tests.support.web import answer, redirect, web_server

UNKNOWN = Origin("server", None)
NETWORK = {"dav", "davs", "ftp", "ftpes", "ftps", "gsiftp", "http", "https"}
TEXTS = (
    *(
        "",
        "x",
        "../x",
        "/etc/passwd",
        "a\nb",
        "\ud800",
        "x" * 5000,
        "10.1/x",
        "md5",
        "SHA-256",
        MD5,
        "md5:" + MD5,
        "md5:",
    ),
    *(
        "file:///etc/passwd",
        "https://[",
        "http://[::1]:0/",
        "s3://b/k",
        "sshftp://-o@h/x",
        "root://h//x",
        "https://h/x",
    ),
    *("https://h/x|a|HTTPServer", "file:///x|a|HTTPServer", "http://a\ud800/records/1", "//h/x", "https://h:99999/x"),
)
LEAF = st.one_of(st.sampled_from(TEXTS), st.none(), st.booleans(), st.integers(-1, 2**70), st.floats(), st.text())
VALUE = st.one_of(LEAF, LEAF.map(lambda one: [one]), LEAF.map(lambda one: {"url": one}))


def some(**values):
    return st.fixed_dictionaries({}, optional=values)


def one_or_two(each):
    return st.one_of(st.lists(each, max_size=2), VALUE)


def objects(base):
    """Return documents that are the answer of all catalogues at once; the server leads to itself."""
    page = st.sampled_from(["/records/7", "/x?persistentId=doi:10.1/x", "/page"]).map(lambda path: base + path)
    entry = some(key=VALUE, size=VALUE, checksum=VALUE, links=some(self=VALUE, content=VALUE))
    data = some(id=VALUE, filename=VALUE, filesize=VALUE, md5=VALUE, checksum=some(type=VALUE, value=VALUE))
    labelled = some(label=VALUE, directoryLabel=VALUE, dataFile=st.one_of(data, VALUE))
    found = some(id=VALUE, title=VALUE, url=VALUE, size=VALUE, checksum=VALUE, checksum_type=VALUE)
    method = some(access_id=VALUE, access_url=st.one_of(some(url=VALUE, headers=VALUE), VALUE))
    return some(
        data=some(attributes=some(url=st.one_of(page, VALUE), contentUrl=VALUE), files=one_or_two(labelled)),
        files=one_or_two(entry),
        entries=one_or_two(entry),
        response=some(numFound=st.integers(0, 3), docs=one_or_two(found)),
        payload=some(resolvedResources=one_or_two(some(compactIdentifierResolvedUrl=VALUE))),
        name=VALUE,
        url=VALUE,
        size=VALUE,
        checksums=one_or_two(some(type=VALUE, checksum=VALUE)),
        access_methods=one_or_two(method),
        contents=st.lists(some(name=VALUE, id=VALUE), max_size=1),
    )


class SameForAll(dict):
    """The same answer at every path."""

    def get(self, path, default=None):
        return 200, "application/json", self["document"]


@given(data=st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_document_names_a_forbidden_scheme_or_a_harmful_path(data, answering):
    url, answers = answering
    answers["document"] = json.dumps(data.draw(objects(url))).encode()
    for name in (f"doi:{DOI}", f"doi:{DOI}#x", f"esgf:{ID}", "drs://drs.example/1", "drs://dg.1:2"):
        with suppress(CoallocError):
            for found in asyncio.run(resolve([name], None, whole=True)):
                assert why_unsafe(found.file.name) is None
                assert {urlsplit(each.url).scheme for each in found.file.replicas} <= NETWORK
                assert {each.origin.kind for each in found.file.replicas} == {found.file.origin.kind} == {"server"}


@pytest.fixture
def answering(home, serve):
    """A server that is all catalogues and gives one document at every path; its URL, and its answers."""
    answers = SameForAll(document=b"{}")
    url = serve(answers)
    (home / "config/coget/config.toml").write_text(
        f'[names]\ndoi = "{url}"\nesgf = "{url}/s"\nidentifiers = "{url}"\n[names.drs]\n"drs.example" = "{url}/drs"\n'
    )
    return url, answers


@pytest.mark.parametrize("document", [b"", b"[" * 100_000, b"\xff\xfe", b"1" * 5000, b"null", b'"x"', b"<html>"])
async def test_answers_that_make_no_sense_are_errors(answering, document):
    answering[1]["document"] = document
    for name in (f"doi:{DOI}", f"esgf:{ID}", "drs://drs.example/1", "drs://dg.1:2"):
        with pytest.raises(CoallocError):
            await resolve([name], None)


@pytest.mark.parametrize("document", [b" " * (documents.MOST_BYTES + 1), b"[" + b"{}," * documents.MOST_VALUES])
async def test_an_answer_that_is_too_large_is_refused(answering, document):
    answering[1]["document"] = document
    with pytest.raises(UsageError, match=r"larger than|more than"):
        await resolve([f"doi:{DOI}"], None)


async def test_answers_are_limited_in_all(answering, monkeypatch):
    answering[1]["document"] = json.dumps({"contents": [{"name": str(i), "id": str(i)} for i in range(3)]}).encode()
    monkeypatch.setattr(documents.DocumentBudget.__init__, "__defaults__", (20, documents.MOST_BYTES_IN_ALL, 10**6))
    with pytest.raises(TooMuch, match="about one name"):
        await resolve(["drs://drs.example/1"], None, whole=True)
    monkeypatch.setattr(documents.DocumentBudget.__init__, "__defaults__", (20, 200, 10**6))
    with pytest.raises(TooMuch, match="about one name"):
        await resolve(["drs://drs.example/1"], None, whole=True)


async def test_a_long_name_of_a_bundle_is_not_repeated_without_end(answering, monkeypatch):
    answering[1]["document"] = json.dumps(
        {"contents": [{"name": "a" * 4000, "contents": [{"name": "b", "contents": [{"name": "c"}] * 30}]}]}
    ).encode()
    monkeypatch.setattr(documents.DocumentBudget.__init__, "__defaults__", (20, 100_000, 10**6))
    with pytest.raises(TooMuch, match="about one name"):
        await resolve(["drs://drs.example/1"], None, whole=True)


async def test_two_files_of_one_name_are_refused(catalogue, home):
    catalogue(zenodo(catalogue.url, ("x.nc", "/x", MD5), ("x.nc", "/bad", MD5)))
    with pytest.raises(UsageError, match="two files of the same name"):
        await resolve([f"doi:{DOI}"], None, whole=True)
    docs = [{"id": str(i), "title": "x.nc", "url": [f"{catalogue.url}/x?{i}|a|HTTPServer"]} for i in range(2)]
    catalogue({
        f"{SEARCH}Dataset&instance_id={ID}": {"response": {"numFound": 1, "docs": [{"id": "d"}]}},
        f"{SEARCH}File&dataset_id=d": {"response": {"numFound": 2, "docs": docs}},
    })  # fmt: skip
    with pytest.raises(UsageError, match=r"two files 'x\.nc' at one node"):
        await resolve([f"esgf:{ID}"], None, whole=True)


@pytest.mark.parametrize("second", ["x", "X/../x", "x/y"])
def test_files_of_a_bundle_have_places_of_their_own(catalogue, home, second):
    catalogue({
        "/drs/objects/1": drs_object(),
        "/drs/objects/1/access/a": {"url": f"{catalogue.url}/x"},
        "/drs/objects/b": {"contents": [{"name": "x", "id": "1"}, {"name": second, "id": "1"}]},
    })  # fmt: skip
    assert invoke(["get", "-r", "drs://drs.example/b", "-o", "all"]) == 2
    assert not (home / "work/all").exists()


@pytest.mark.parametrize("contents", [[], None])
def test_an_object_with_empty_contents_is_a_file_and_needs_a_copy(catalogue, home, contents):
    copies = [{"access_url": {"url": f"{catalogue.url}/x"}}]
    catalogue({
        "/drs/objects/1": {"name": "y.nc", "contents": contents, "access_methods": copies},
        "/drs/objects/2": {"name": "z.nc", "contents": contents},
        "/drs/objects/3": {"name": "in", "contents": [5]},
    })  # fmt: skip
    assert invoke(["get", "drs://drs.example/1"]) == 0
    assert (home / "work/y.nc").exists()
    for number in "23":
        for words in ([], ["-r"]):
            assert invoke(["get", *words, f"drs://drs.example/{number}"]) != 0


def test_a_catalogue_with_a_wrong_size_gives_no_file(catalogue, home):
    wrong = {**drs_object(), "size": 5, "checksums": []}
    catalogue({"/drs/objects/1": wrong, "/drs/objects/1/access/a": {"url": f"{catalogue.url}/x"}})
    assert invoke(["get", "drs://drs.example/1"]) != 0
    assert not (home / "work/y.nc").exists()


def test_very_many_descriptions_of_a_file_are_compared_in_linear_time():
    many = [ReplicaSet("x", (), 5)] * 100_000
    assert merged(many, ["x"] * len(many), sure=True).size == 5
    with pytest.raises(UsageError, match="of 5 and 6 bytes"):
        merged([*many, ReplicaSet("x", (), 6)], ["x"] * (len(many) + 1), sure=True)


@pytest.mark.parametrize(
    "table",
    ["names = 5", "[names]\ndoi = 5", '[names]\ndoi = "ftp://h/"', '[names]\ndoi = "https://["', '[names]\nx = "http://h"',
     '[names]\ndrs = "https://h"', '[names.drs]\n"h" = 5', '[names]\nesgf = "https://h:0/"', '[names]\nesgf = "https://"'],
)  # fmt: skip
def test_an_invalid_table_of_names_is_named(home, table):
    (home / "config/coget/config.toml").write_text(table)
    with pytest.raises(UsageError, match="names"):
        catalogue_settings()


async def test_a_token_goes_to_the_host_of_a_name_and_to_no_other(home, grid, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", "t0ken")
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    replies = {}

    def reply(heard):
        return replies.get(heard.path) or answer("200 OK", b"{}")

    async with web_server(reply, grid) as server, web_server(lambda _: answer("200 OK", b"{}"), grid) as thief:
        (home / "config/coget/config.toml").write_text(
            f'[names]\ndoi = "{server.url}"\nesgf = "{server.url}"\nidentifiers = "{server.url}"\n'
        )
        place = f"{thief.url}/ga4gh/drs/v1/objects/7"
        found = {"payload": {"resolvedResources": [{"compactIdentifierResolvedUrl": place}]}}
        replies["/dg.1:7"] = answer("200 OK", json.dumps(found).encode())
        replies["/ga4gh/drs/v1/objects/1"] = redirect(f"{thief.url}/x")
        asked = (f"doi:{DOI}", f"esgf:{ID}", "drs://dg.1:7", f"drs://{urlsplit(server.url).netloc}/1")
        for name in asked:
            with pytest.raises(CoallocError):
                await resolve([name], None, credentials=Credentials({"X-Key": "k3y"}))
        assert {heard.path.partition("?")[0] for heard in server.heard if heard.header("Authorization")} == {
            "/ga4gh/drs/v1/objects/1"
        }
        assert len(server.heard) >= 5
        assert len(thief.heard) == 2
        assert set(thief.all("Authorization") + thief.all("X-Key")) == {None}


async def test_a_catalogue_leads_from_https_to_https_only(home, grid, monkeypatch, serve):
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    plain = serve({})
    record = {"data": {"attributes": {"url": f"{plain}/records/7"}}}
    async with web_server(lambda _: answer("200 OK", json.dumps(record).encode()), grid) as server:
        (home / "config/coget/config.toml").write_text(f'[names]\ndoi = "{server.url}"\n')
        with pytest.raises(NotAllowed, match="may not lead there"):
            await resolve([f"doi:{DOI}"], None)


async def test_a_public_catalogue_leads_to_no_inner_address(serve):
    url = serve({"/x": (200, "application/json", b"{}")})
    local = documents.DocumentReader((DirectDialer(),), None, Origin("server", "127.0.0.1"), secure=False)
    assert await local.json(f"{url}/x")
    for public in (local.under(replace(local, origin=Origin("server", "192.0.2.1"))), replace(local, origin=UNKNOWN)):
        with pytest.raises(CoallocError, match="127"):
            await public.json(f"{url}/x")


async def test_rucio_repeats_no_secret_and_gets_no_other(home, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", "t0ken")
    monkeypatch.setenv("RUCIO_CONFIG", str(home / "rucio.cfg"))
    async with web_server(lambda heard: answer(f"403 no {heard.header('X-Rucio-Password')}")) as server:
        for kind in ("userpass", "x509"):
            (home / "rucio.cfg").write_text(
                f"[client]\nrucio_host = {server.url}\nauth_type = {kind}\n"
                "account = a\nusername = u\npassword = s3cret-1\n"
            )
            with pytest.raises(CoallocError) as caught:
                await resolve(["rucio:s:n"], None, credentials=Credentials({"X-Key": "k3y"}))
            assert "s3cret-1" not in caught.value.message + caught.value.remedy
        assert server.all("X-Rucio-Password") == ["s3cret-1", None]
        assert set(server.all("Authorization") + server.all("X-Key")) == {None}


async def test_a_list_on_standard_input_uses_no_login_of_rucio(home, tmp_path):
    failed = []
    with pytest.raises(CoallocError):
        await api.download_list(
            api.Request((), output=tmp_path / "out"), [ListedFile(("rucio:s:n",), 1)], failed.append, typed=False
        )
    assert "needs your login" in failed[0].error.message


async def test_a_compact_identifier_is_found_by_identifiers_org_or_by_the_users_table(catalogue, home):
    place = f"{catalogue.url}/ga4gh/drs/v1/objects"
    catalogue({
        "/dg.1:1": {"payload": {"resolvedResources": [{"compactIdentifierResolvedUrl": f"{place}/1"}]}},
        "/ga4gh/drs/v1/objects/1": drs_object(),
        "/ga4gh/drs/v1/objects/1/access/a": {"url": f"{catalogue.url}/x"},
    })  # fmt: skip
    (found,) = await resolve(["drs://dg.1:1"], None)
    assert [each.url for each in found.file.replicas] == [f"{catalogue.url}/x"]
    with pytest.raises(CoallocError, match=r"no DRS server is known|404"):
        await resolve(["drs://dg.2:1"], None)
    catalogue({"/drs/objects/1": drs_object(), "/drs/objects/1/access/a": {"url": f"{catalogue.url}/x?2"}})
    with (home / "config/coget/config.toml").open("a") as table:
        table.write(f'"dg.3" = "{catalogue.url}/drs/"\n')
    (found,) = await resolve(["drs://DG.3:1"], None)
    assert [each.url for each in found.file.replicas] == [f"{catalogue.url}/x?2"]
