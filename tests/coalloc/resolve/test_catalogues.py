"""Names in catalogues: DOIs, DRS, ESGF and Rucio, by small servers that answer in the documented forms."""

import hashlib
import json
from threading import Barrier, Lock
from urllib.parse import urlsplit

import pytest

from coalloc.cli.main import invoke
from coalloc.credentials import Credentials
from coalloc.errors import CoallocError, NotAllowed, NothingToFetchFrom, PermissionRefused, TooMuch, UsageError
from coalloc.resolve import resolve
from coalloc.resolve.catalogues import rucio
from coalloc.resolve.catalogues.drs import AT_ONCE
from tests.support.catalogues import CONTENT, DOI, ID, MD5, SHA256, drs_object, esgf, zenodo
from tests.support.waiting import PATIENCE
from tests.support.web import answer, redirect, web_server


@pytest.mark.parametrize("name", [f"doi:{DOI}", f"https://doi.org/{DOI}", f"doi:{DOI}#x.nc"])
def test_a_doi_of_zenodo(catalogue, name, home):
    catalogue(zenodo(catalogue.url, ("x.nc", "/x", MD5)))
    assert invoke(["get", "-o", "got", name]) == 0
    assert (home / "work/got").read_bytes() == CONTENT


def test_a_wrong_file_is_not_kept(catalogue, home):
    catalogue(zenodo(catalogue.url, ("x.nc", "/bad", MD5)))
    assert invoke(["get", f"doi:{DOI}"]) != 0
    assert not (home / "work/x.nc").exists()


def test_several_files_are_listed_or_all_fetched(catalogue, home, capsys):
    catalogue(zenodo(catalogue.url, ("x.nc", "/x", MD5), ("sub/y.nc", "/x", MD5)))
    assert invoke(["get", f"doi:{DOI}"]) != 0
    printed = capsys.readouterr().err
    assert "sub/y.nc" in printed
    assert f"coget get -r 'doi:{DOI}'" in printed
    assert invoke(["get", "-r", f"doi:{DOI}"]) == 0
    assert (home / "work/zenodo.77/sub/y.nc").read_bytes() == CONTENT
    (home / "work/list").write_text(f"doi:{DOI}#x.nc\n")
    assert invoke(["get", "-i", "list", "-o", "listed"]) == 0
    assert (home / "work/listed/x.nc").read_bytes() == CONTENT


@pytest.mark.parametrize("key", ["../x", "/etc/x", "a\nb", ""])
def test_file_names_must_be_harmless(catalogue, key):
    catalogue(zenodo(catalogue.url, (key, "/x", MD5)))
    assert invoke(["get", f"doi:{DOI}"]) == 2


def test_a_doi_of_a_dataverse(catalogue, home):
    doi = "10.7910/DVN/X"
    data = {"id": 5, "filename": "x.nc", "filesize": len(CONTENT), "checksum": {"type": "MD5", "value": MD5}}
    catalogue({
        f"/dois/{doi}": {"data": {"attributes": {"url": f"{catalogue.url}/dataset.xhtml?persistentId=doi:{doi}"}}},
        "/api/datasets/:persistentId/versions/:latest-published?persistentId=doi%3A10.7910%2FDVN%2FX": {
            "status": "OK", "data": {"files": [{"label": "x.nc", "directoryLabel": "d", "dataFile": data}]}
        },
        "/api/access/datafile/5": CONTENT,
    })  # fmt: skip
    assert invoke(["get", f"doi:{doi}"]) == 0
    assert (home / "work/d/x.nc").read_bytes() == CONTENT


def test_a_drs_object_and_a_bundle(catalogue, home):
    catalogue({
        "/drs/objects/1": drs_object(),
        "/drs/objects/1/access/a": {"url": f"{catalogue.url}/x"},
        "/drs/objects/b": {"id": "b", "contents": [{"name": "in", "contents": [{"name": "z", "id": "1"}]}]},
    })  # fmt: skip
    assert invoke(["get", "drs://drs.example/1"]) == 0
    assert (home / "work/y.nc").read_bytes() == CONTENT
    assert invoke(["get", "-r", "drs://drs.example/b", "-o", "all"]) == 0
    assert (home / "work/all/in/z").read_bytes() == CONTENT


@pytest.mark.parametrize(("kind", "value", "status"), [("md5", MD5, 0), ("md5", "0" * 32, 2), ("sha-256", SHA256, 2)])
def test_several_names_are_one_file_if_a_checksum_agrees(catalogue, kind, value, status, home):
    catalogue({
        **zenodo(catalogue.url, ("x.nc", "/x", MD5)),
        "/drs/objects/1": drs_object(value, kind),
        "/drs/objects/1/access/a": {"url": f"{catalogue.url}/x?2"},
    })  # fmt: skip
    assert invoke(["get", f"doi:{DOI}", "drs://drs.example/1"]) == status
    assert (home / "work/x.nc").exists() == (status == 0)


def test_a_description_that_adds_a_checksum_of_other_bytes_blames_no_right_copy(catalogue, home):
    """The second one copies the checksum of the first, and adds that of what its own server sends."""
    lie = drs_object(hashlib.sha256(CONTENT[::-1]).hexdigest())
    lie["checksums"].append({"type": "md5", "checksum": MD5})
    catalogue({
        **zenodo(catalogue.url, ("x.nc", "/x", MD5)),
        "/drs/objects/1": lie,
        "/drs/objects/1/access/a": {"url": f"{catalogue.url}/bad"},
    })  # fmt: skip
    assert invoke(["get", f"doi:{DOI}", "drs://drs.example/1"]) == 0
    assert (home / "work/x.nc").read_bytes() == CONTENT


async def test_a_doi_has_all_files_that_its_record_names(catalogue):
    urls = [f"https://repository.example/{i}.nc" for i in range(1500)]
    record = {"url": "https://repository.example/landing/7", "contentUrl": urls}
    catalogue({f"/dois/{DOI}": {"data": {"attributes": record}}})
    assert [each.file.replicas[0].url for each in await resolve([f"doi:{DOI}"], None, whole=True)] == urls


async def test_a_file_of_a_doi_is_taken_by_its_exact_name(catalogue):
    catalogue(zenodo(catalogue.url, ("a b", "/one", MD5), ("a%20b", "/x", MD5)))
    for wanted, path in (("a%20b", "/x"), ("a b", "/one"), ("a%2520b", "/x")):
        (found,) = await resolve([f"doi:{DOI}#{wanted}"], None)
        assert [each.url for each in found.file.replicas] == [catalogue.url + path]


async def test_a_bundle_that_contains_itself_ends(catalogue):
    catalogue({"/drs/objects/b": {"contents": [{"name": "b", "id": "b"}]}})
    with pytest.raises(TooMuch, match="within each other"):
        await resolve(["drs://drs.example/b"], None)


async def test_bundles_may_be_32_within_each_other(catalogue):
    inner = {f"/drs/objects/b{i}": {"contents": [{"name": "b", "id": f"b{i - 1}"}]} for i in range(1, 34)}
    catalogue({"/drs/objects/b0": drs_object(), "/drs/objects/b0/access/a": {"url": f"{catalogue.url}/x"}, **inner})
    (found,) = await resolve(["drs://drs.example/b32"], None, whole=True)
    assert (found.file.name, len(found.file.replicas)) == ("/".join("b" * 32), 1)
    with pytest.raises(TooMuch, match="more than 32 bundles"):
        await resolve(["drs://drs.example/b33"], None, whole=True)


async def test_esgf_copies_at_all_nodes(catalogue, home):
    catalogue(esgf(catalogue.url, (f"{catalogue.url}/x", SHA256), (f"{catalogue.url}/x?2", SHA256)))
    (found,) = await resolve([f"esgf:{ID}|n"], None)
    assert [each.url for each in found.file.replicas] == [f"{catalogue.url}/x", f"{catalogue.url}/x?2"]
    catalogue(esgf(catalogue.url, (f"{catalogue.url}/x", SHA256), (f"{catalogue.url}/x?2", "0" * 64)))
    with pytest.raises(UsageError, match="checksums differ"):
        await resolve([f"esgf:{ID}"], None)


def test_an_esgf_dataset_is_fetched(catalogue, home):
    catalogue(esgf(catalogue.url, (f"{catalogue.url}/x", SHA256)))
    assert invoke(["get", f"esgf:{ID}"]) == 0
    assert (home / "work/x.nc").read_bytes() == CONTENT


async def test_a_catalogue_leads_to_no_local_file(catalogue):
    catalogue({f"/dois/{DOI}": {"data": {"attributes": {"url": "file:///records/77"}}}})
    with pytest.raises(NotAllowed):
        await resolve([f"doi:{DOI}"], None)


async def test_rucio_logs_in_and_sends_nothing_to_another_host(home, monkeypatch):
    replies = {
        "/auth/userpass": answer("200 OK", X_Rucio_Auth_Token="tok"),
        "/replicas/s/n": answer(
            "200 OK",
            f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="n"><hash type="md5">{MD5}</hash>'
            "<url>https://a.example/n</url><url>root://a.example/n</url></file></metalink>".encode(),
        ),
        "/dids/s/n/files": answer("200 OK", b'{"scope": "s", "name": "n", "bytes": 5}\n'),
    }
    async with web_server(lambda heard: replies[heard.path]) as server, web_server(lambda _: answer("200 OK")) as thief:
        (home / "rucio.cfg").write_text(
            f"[client]\nrucio_host = {server.url}\nauth_type = userpass\naccount = a\nusername = u\npassword = pw%1\n"
        )
        monkeypatch.setenv("RUCIO_CONFIG", str(home / "rucio.cfg"))
        (found,) = await resolve(["rucio:s:n"], None, credentials=Credentials())
        assert [each.url for each in found.file.replicas] == ["https://a.example/n"]
        assert server.heard[0].header("X-Rucio-Password") == "pw%1"
        assert {heard.header("X-Rucio-Auth-Token") for heard in server.heard[1:]} == {"tok"}
        replies["/replicas/s/n"] = redirect(f"{thief.url}/")
        with pytest.raises(Exception, match="302"):
            await resolve(["rucio:s:n"], None, credentials=Credentials())
        assert not thief.heard
        with pytest.raises(PermissionRefused, match="may not be used"):
            await resolve(["rucio:s:n"], None, credentials=Credentials(own=False))


async def test_files_that_rucio_leaves_out_are_errors(home, monkeypatch):
    """Its Metalink has only files with an available replica, also if one has a slash at the beginning of its name."""
    url = "<url>https://a.example/y</url>"
    replies = {
        "/auth/userpass": answer("200 OK", X_Rucio_Auth_Token="tok"),
        "/replicas/s/set": answer(
            "200 OK",
            f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="/store/y">{url}</file></metalink>'.encode(),
        ),
        "/dids/s/set/files": answer("200 OK", b'{"scope": "s", "name": "/store/y"}\n{"scope": "s", "name": "gone"}\n'),
    }
    async with web_server(lambda heard: replies[heard.path]) as server:
        (home / "rucio.cfg").write_text(
            f"[client]\nrucio_host = {server.url}\nauth_type = userpass\naccount = a\nusername = u\npassword = p\n"
        )
        monkeypatch.setenv("RUCIO_CONFIG", str(home / "rucio.cfg"))
        found = await resolve(["rucio:s:set"], None, credentials=Credentials(), whole=True)
        assert [(each.file.name, len(each.file.replicas)) for each in found] == [("store/y", 1), ("gone", 0)]
        for listed in (b"[", b'{"scope": "s", "name": "/../x"}', b'{"scope": "s", "name": "/store/y"}\n' * 2, b""):
            replies["/dids/s/set/files"] = answer("200 OK", listed)
            with pytest.raises(CoallocError):
                await resolve(["rucio:s:set"], None, credentials=Credentials(), whole=True)
        replies["/dids/s/set/files"] = answer("200 OK", b'{"scope": "s", "name": "other"}')
        with pytest.raises(NothingToFetchFrom, match=r"'store/y', but does not list"):
            await resolve(["rucio:s:set"], None, credentials=Credentials(), whole=True)
        monkeypatch.setattr(rucio, "MOST_FILES", 2)
        replies["/dids/s/set/files"] = answer(
            "200 OK", b'{"scope": "s", "name": "/store/y"}\n' + b"\n".join([b"{}"] * 2)
        )
        with pytest.raises(TooMuch, match="more than 2 files"):
            await resolve(["rucio:s:set"], None, credentials=Credentials(), whole=True)
        replies["/dids/s/set/files"] = answer("401 Unauthorized")
        with pytest.raises(PermissionRefused) as refused:
            await resolve(["rucio:s:set"], None, credentials=Credentials())
        assert refused.value.remedy == f"check account, username and password in {home / 'rucio.cfg'}"


async def test_the_error_says_how_to_name_a_local_file_or_a_dataset_that_looks_like_a_name(home):
    (home / "work/doi:x.meta4").touch()
    with pytest.raises(UsageError) as refused:
        await resolve(["doi:x.meta4"], None)
    assert refused.value.remedy.endswith("for the local file of that name, write ./doi:x.meta4")
    with pytest.raises(UsageError) as refused:
        await resolve(["doi:run1"], None, ask)
    assert refused.value.remedy.endswith("for a dataset of your broker, write coget:doi:run1")


async def ask(names):
    return []


def test_a_bundle_has_files_that_its_server_does_not_give(catalogue, home, capsys):
    """Entries without an id, of an unknown object, or without a usable copy are errors; the others arrive."""
    host = urlsplit(catalogue.url).netloc
    lost = {**drs_object(), "access_methods": [{"type": "s3", "access_url": {"url": "s3://b/x"}}]}
    entries = [
        {"name": "a", "id": "1"},
        {"name": "empty", "contents": []},
        {"name": "b", "drs_uri": ["drs://elsewhere/9", f"drs://{host}/1"]},
        {"name": "no-id"},
        {"name": "unknown", "id": "9"},
        {"name": "s3", "id": "3"},
    ]
    catalogue({
        "/drs/objects/1": drs_object(),
        "/drs/objects/1/access/a": {"url": f"{catalogue.url}/x"},
        "/drs/objects/3": lost,
        "/drs/objects/b": {"id": "b", "contents": entries},
    })  # fmt: skip
    assert invoke(["get", "-r", "drs://drs.example/b", "-o", "all"]) != 0
    assert {path.name: path.read_bytes() for path in (home / "work/all").iterdir()} == {"a": CONTENT, "b": CONTENT}
    printed = capsys.readouterr().err
    for name, why in {"no-id": "names no object", "unknown": "404", "s3": "s3://"}.items():
        assert name in printed
        assert why in printed


class Together(dict):
    """A bundle of twice as many objects as are asked for at once; they are answered in groups of that size."""

    def __init__(self):
        self.barrier, self.lock, self.asked, self.most = Barrier(AT_ONCE), Lock(), 0, 0
        self.names = [str(number) for number in range(2 * AT_ONCE)]

    def get(self, path, default=None):
        document = {"contents": [{"name": each, "id": each} for each in self.names]}
        if not path.endswith("/b"):
            with self.lock:
                self.asked += 1
                self.most = max(self.most, self.asked)
            self.barrier.wait(PATIENCE)
            with self.lock:
                self.asked -= 1
            document = drs_object() | {"access_methods": [{"access_url": {"url": "https://h/x"}}]}
        return 200, "application/json", json.dumps(document).encode()


async def test_objects_of_a_bundle_are_asked_for_at_once_within_a_limit(home, serve):
    answers = Together()
    (home / "config/coget/config.toml").write_text(f'[names.drs]\n"drs.example" = "{serve(answers)}"\n')
    found = await resolve(["drs://drs.example/b"], None, whole=True)
    assert [each.file.name for each in found] == answers.names
    assert answers.most == AT_ONCE


async def test_a_name_of_the_broker(home):
    async def ask(names):
        assert names == ["run1:x"]
        return []

    assert await resolve(["coget:run1:x"], None, ask) == []
    with pytest.raises(UsageError, match="none is configured"):
        await resolve(["coget:run1:x"], None)
