"""The Python API: a request takes what a user would write."""

from pathlib import Path

import pytest

from coalloc import api
from coalloc.errors import CoallocError, UsageError
from tests.support.fetching import random_file
from tests.support.gridftp import GridFTPServer


@pytest.fixture
def servers(start_gridftp, tmp_path) -> list[GridFTPServer]:
    made = [start_gridftp(tmp_path / "export", host) for host in ("127.0.0.2", "127.0.0.3")]
    for seed, name in enumerate(("x.root", "y.root")):
        random_file(made[0].root / name, 300_000, seed)
    return made


@pytest.mark.parametrize(
    ("output", "name"), [("here", "here"), ("folder/", "folder/x.root"), ("folder", "folder/x.root"), (None, "x.root")]
)
async def test_an_output_may_be_a_string(servers, tmp_path, monkeypatch, output, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (report,) = await api.download(api.Request(servers[0].url("x.root"), output=output))
    assert report.output == name
    assert (tmp_path / name).read_bytes() == (servers[0].root / "x.root").read_bytes()


@pytest.mark.parametrize("several", [False, True])
async def test_a_metalink_may_be_a_path(servers, tmp_path, several):
    document = tmp_path / "x.meta4"
    document.write_text(await api.metalink(api.Request(servers[0].url("x.root"))))
    await api.download(api.Request([document] if several else document, output=tmp_path / "here"))
    assert (tmp_path / "here").read_bytes() == (servers[0].root / "x.root").read_bytes()


async def test_several_files_are_refused_before_the_first_byte_if_one_is_wanted(servers, tmp_path):
    document = tmp_path / "both.meta4"
    entries = (f'<file name="{name}"><url>{servers[0].url(name)}</url></file>' for name in ("x.root", "y.root"))
    document.write_text(f'<metalink xmlns="urn:ietf:params:xml:ns:metalink">{"".join(entries)}</metalink>')
    with pytest.raises(UsageError, match="names 2 files"):
        await api.download(api.Request(document, output=tmp_path / "here", one_file=True))
    assert not (tmp_path / "here").exists()
    await api.download(api.Request(document, output=tmp_path / "here"))
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["x.root", "y.root"]


@pytest.mark.parametrize("name", ["esgf:x", "runs", "ftp:/host/x"])
async def test_a_path_is_of_a_file_even_if_it_looks_like_another_name(name):
    with pytest.raises(CoallocError) as caught:
        await api.download(api.Request(Path(name)))
    assert f"./{name}" in caught.value.message


async def test_a_list_makes_the_directory_that_a_string_names(servers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listed = api.read_list([servers[0].url("x.root")])
    await api.download_list(api.Request((), output="data/new/"), listed, lambda _: None)
    assert (tmp_path / "data/new/x.root").read_bytes() == (servers[0].root / "x.root").read_bytes()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"sources": [3]}, "3 is not a source"),
        ({"sources": None}, "None is not a source"),
        ({"output": b"x"}, "not a path"),
        ({"output": 7}, "not a path"),
        ({"output": ""}, "is empty"),
        ({"output": "none/"}, "not a directory"),
        ({"engine": "steam"}, "unknown engine steam"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused_with_a_reason(tmp_path, wrong, says):
    with pytest.raises(UsageError, match=says):
        await api.download(api.Request(**{"sources": "ftp://127.0.0.1:9/x", **wrong}))


async def test_an_error_says_whether_it_may_pass(servers, tmp_path):
    for url, passes in ((servers[0].url("none"), False), ("ftp://127.0.0.1:9/x", True)):
        with pytest.raises(CoallocError) as caught:
            await api.download(api.Request(url, output=tmp_path / "x"))
        assert caught.value.transient == passes
