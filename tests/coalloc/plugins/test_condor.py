"""HTCondor's file transfer plugin as HTCondor calls it: a program that reads and writes files of ads."""

import asyncio
import os
import subprocess
import sys
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import pytest

from coalloc.engine.clouds import CLOUDS
from coalloc.partial_file.folder import PartialFolder
from coalloc.plugins.classads import AdError, read_ads, write_ad
from coalloc.plugins.condor import VERSION
from tests.support.coget import patient
from tests.support.fetching import random_file
from tests.support.listening import reserved
from tests.support.nginx import Nginx
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE
from tests.support.web import ranges, web_server

PLUGIN = [sys.executable, "-c", "from coalloc.plugins.condor import main; main()"]


@pytest.fixture
def web(tmp_path):
    with ExitStack() as stack:
        yield [stack.enter_context(Nginx(tmp_path / f"web{i}", tmp_path / f"run{i}")) for i in range(2)]


@pytest.fixture
def scratch(tmp_path):
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def call(scratch: Path, files: dict[str, str], *words: str, **environment: str):
    """Call the plugin for these local names and their URLs; return its status, and the ads by local name."""
    ads = "".join(write_ad({"LocalFileName": str(scratch / name), "Url": url}) for name, url in files.items())
    (scratch.parent / "in").write_text(ads)
    ended = plugin(
        scratch, "-infile", str(scratch.parent / "in"), "-outfile", str(scratch.parent / "out"), *words, **environment
    )
    results = read_ads((scratch.parent / "out").read_text())
    assert len(results) == len(files), ended.stderr
    return ended.returncode, {Path(str(each["transferfilename"])).name: each for each in results}


def plugin(scratch: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the plugin in the environment of a daemon, whose home directory is not the job's."""
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3]), "HOME": "/nonexistent"}
    return subprocess.run(
        [*PLUGIN, *words], capture_output=True, text=True, cwd=scratch, timeout=PATIENCE, env={**clean, **environment}
    )


def held(folder: Path) -> list[str]:
    """Return the names in a directory."""
    return sorted(path.name for path in folder.iterdir())


def test_it_describes_itself_without_importing_coget(scratch):
    ended = plugin(scratch, "-classad")
    described = dict(line.split(" = ") for line in ended.stdout.splitlines())
    assert described == {
        "MultipleFileSupport": "true",
        "PluginType": '"FileTransfer"',
        "PluginVersion": f'"{VERSION}"',
        "ProtocolVersion": "2",
        "SupportedMethods": '"coget,replica,gsiftp"',
    }
    assert version("coget") == VERSION
    code = "import sys; sys.argv[1:] = ['-classad']; import atexit; from coalloc.plugins.condor import main; "
    code += "atexit.register(lambda: print(sorted(m for m in sys.modules if m.startswith('coalloc')))); main()"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert printed.splitlines()[-1] == "['coalloc', 'coalloc.plugins', 'coalloc.plugins.condor']"


def test_all_files_of_a_call_come_from_all_their_servers(web, scratch):
    contents = {}
    for i in range(10):
        contents[f"{i}.bin"] = random_file(web[0].root / f"{i}.bin", 200_000, i)
        (web[1].root / f"{i}.bin").write_bytes(contents[f"{i}.bin"])
    files = {name: "coget://" + "|".join(server.url(name) for server in web) for name in contents}
    status, results = call(scratch, files)
    assert status == 0
    assert {name: (scratch / name).read_bytes() for name in files} == contents
    assert held(scratch) == sorted(files)
    for name, result in results.items():
        assert result["transfersuccess"] is True
        assert (result["transferurl"], result["transferprotocol"]) == (files[name], "coget")
        assert (result["transfertype"], result["transferfilebytes"]) == ("download", 200_000)
        assert len(result["developerdata"]["sources"]) == 2
        assert "transfererror" not in result


def test_each_failure_names_its_server_and_stage_and_spares_the_others(web, scratch, start_gridftp, tmp_path):
    content = random_file(web[0].root / "good", 1000)
    entries = "".join(f'<file name="{name}"><url>{web[0].url("good")}</url></file>' for name in ("a", "b"))
    (web[0].root / "two.meta4").write_text(f'<metalink xmlns="urn:ietf:params:xml:ns:metalink">{entries}</metalink>')
    locked = start_gridftp(tmp_path / "locked", anonymous=False)
    with reserved("127.0.0.1") as closed:
        files = {
            "good": web[0].url("good"),
            "missing": web[0].url("missing"),
            "secret": locked.url("x"),
            "malformed": "coget://https://:0/",
            "bracket": "coget://http://[bad/y",
            "several": f"coget://{web[0].url('two.meta4')}",
            "nowhere": "http://unknown.invalid/x",
            "dead": f"http://127.0.0.1:{closed.getsockname()[1]}/x",
        }
        status, results = call(scratch, files)
    assert status == 1
    assert (scratch / "good").read_bytes() == content
    assert held(scratch) == ["good"]
    assert {name: result["transfersuccess"] for name, result in results.items()} == {
        name: name == "good" for name in files
    }
    said = {name: result["transfererrordata"] for name, result in results.items() if name != "good"}
    stages = {name: (errors[0]["errortype"], errors[0].get("failedserver")) for name, errors in said.items()}
    assert stages == {
        "missing": ("Specification", f"127.0.0.1:{web[0].port}"),
        "secret": ("Authorization", f"127.0.0.1:{locked.port}"),
        "malformed": ("Parameter", None),
        "bracket": ("Parameter", None),
        "several": ("Parameter", None),
        "nowhere": ("Resolution", None),
        "dead": ("Contact", f"127.0.0.1:{closed_port(files['dead'])}"),
    }
    assert said["nowhere"][0]["failedname"] == "unknown.invalid"
    assert {name: [each["retryable"] for each in errors] for name, errors in said.items()} == {
        "missing": [-1],
        "secret": [-1],
        "malformed": [-1],
        "bracket": [-1],
        "several": [-1],
        "nowhere": [-1],
        "dead": [0, 0, 0],
    }
    assert "404" in results["missing"]["transfererror"]
    assert all(result["transferurl"] == files[name] for name, result in results.items())


def closed_port(url: str) -> str:
    return url.rpartition(":")[2].partition("/")[0]


def test_wrong_bytes_do_not_get_the_file_s_name(web, scratch):
    for seed, server in enumerate(web):
        random_file(server.root / "x", 1000 + seed)
    late = patient(scratch.parent)
    path = os.pathsep.join([late["PYTHONPATH"], str(Path(__file__).parents[3])])
    url = "coget://" + "|".join(server.url("x") for server in web)
    status, results = call(scratch, {"x": url}, PYTHONPATH=path)
    assert (status, held(scratch)) == (1, [])
    assert "different files" in results["x"]["transfererror"]


def test_ads_of_one_file_follow_each_other_and_the_last_one_counts(web, scratch, tmp_path):
    contents = [random_file(server.root / "x", 1_000_000, i) for i, server in enumerate(web)]
    urls = [server.url("x") for server in web]
    ads = "".join(write_ad({"LocalFileName": str(scratch / "x"), "Url": url}) for url in [*urls, urls[1]])
    (tmp_path / "in").write_text(ads)
    ended = plugin(scratch, "-infile", str(tmp_path / "in"), "-outfile", str(tmp_path / "out"))
    results = read_ads((tmp_path / "out").read_text())
    assert [each.get("transfererror") for each in results] == [None] * 3
    assert [each["developerdata"]["tries"] for each in results] == [1] * 3
    assert [each["transferurl"] for each in results] == [*urls, urls[1]]
    assert (ended.returncode, held(scratch), (scratch / "x").read_bytes()) == (0, ["x"], contents[1])


def test_partial_data_that_another_process_uses_are_not_deleted(web, scratch):
    random_file(web[0].root / "x", 1000)
    other = PartialFolder(scratch / "x")
    try:
        status, results = call(scratch, {"x": web[0].url("x")})
        assert (status, held(scratch), results["x"]["developerdata"]["tries"]) == (1, ["x.coget"], 3)
        assert "another coget is fetching" in results["x"]["transfererror"]
    finally:
        other.unlock()


async def test_a_failure_that_may_pass_is_tried_again(scratch):
    """A server that closes its first connections without an answer, so that the first attempt fails."""
    connections = 0

    async def serve(reader, writer):
        nonlocal connections
        connections += 1
        while connections > 2 and await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nAccept-Ranges: bytes\r\nContent-Length: 0\r\n\r\n")

    async with raw_server(serve) as port:
        status, results = await asyncio.to_thread(call, scratch, {"x": f"http://127.0.0.1:{port}/x"})
    assert (status, (scratch / "x").read_bytes()) == (0, b"")
    result = results["x"]
    assert result["developerdata"]["tries"] > 1
    assert [each["retryable"] for each in result["transfererrordata"]] == [0] * (result["developerdata"]["tries"] - 1)
    assert {each["failedserver"] for each in result["transfererrordata"]} == {f"127.0.0.1:{port}"}


def test_uploads_are_refused_with_the_reason(scratch):
    (scratch / "x").write_bytes(b"1")
    status, results = call(scratch, {"x": "gsiftp://a.example/x"}, "-upload")
    assert status == 1
    assert (results["x"]["transfertype"], results["x"]["transfererrordata"][0]["errortype"]) == ("upload", "Parameter")


def test_nothing_is_read_or_written_below_the_home_directory(web, scratch, tmp_path):
    random_file(web[0].root / "x", 1000)
    home = tmp_path / "home"
    (home / ".config" / "coget").mkdir(parents=True)
    (home / ".config" / "coget" / "config.toml").write_text("this is not TOML")
    status, _ = call(scratch, {"x": f"coget://{web[0].url('x')}"}, HOME=str(home))
    assert status == 0
    assert [path.name for path in home.rglob("*")] == [".config", "coget", "config.toml"]
    assert held(scratch) == ["x"]


DAEMON = {
    "gs": {"GOOGLE_BEARER_TOKEN": "daem0ns-token"},
    "az": {"AZURE_STORAGE_TOKEN": "daem0ns-token", "AZURE_STORAGE_ACCOUNT_NAME": "account"},
}


@pytest.mark.parametrize("scheme", DAEMON)
async def test_the_daemon_s_cloud_credentials_are_not_the_job_s(scratch, scheme):
    pytest.importorskip("obstore")
    serve = ranges(b"content")

    def reply(heard):
        return serve(heard).replace(b"ETag", b"Last-Modified: Fri, 27 Feb 2026 10:00:00 GMT\r\nETag", 1)

    async with web_server(reply) as server:
        environment = {**DAEMON[scheme], CLOUDS[scheme].endpoint: server.url}
        status, results = await asyncio.to_thread(call, scratch, {"x": f"coget://{scheme}://private/x"}, **environment)
    assert (status, (scratch / "x").read_bytes()) == (0, b"content"), results
    assert server.all("Authorization") == [None] * len(server.heard)
    assert not any("daem0ns" in request for request in server.heard)


@pytest.mark.parametrize("scheme", ["sftp", "github"])
def test_libraries_with_credentials_of_their_own_are_not_called(scratch, scheme):
    with reserved("127.0.0.1") as closed:
        url = f"{scheme}://127.0.0.1:{closed.getsockname()[1]}/x"
        status, results = call(scratch, {"x": f"coget://{url}"})
    assert status == 1
    assert "credentials of the environment" in results["x"]["transfererror"]


@pytest.mark.parametrize("words", [[], ["-infile", "/none"], ["x", "y"]])
def test_wrong_arguments_are_refused(scratch, words):
    ended = plugin(scratch, *words)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("usage: ")


def test_an_unreadable_list_of_files_is_an_error_and_leaves_no_old_results(scratch, tmp_path):
    (tmp_path / "out").write_text("[ TransferSuccess = true ]")
    for text in ("[ Url = ", None):
        if text:
            (tmp_path / "in").write_text(text)
        else:
            (tmp_path / "in").unlink()
        ended = plugin(scratch, "-infile", str(tmp_path / "in"), "-outfile", str(tmp_path / "out"))
        assert ended.returncode == 1
        assert "condor_coget_plugin: " in ended.stderr
        assert (tmp_path / "out").read_text() == ""


@pytest.mark.parametrize("text", ["[", "[ x ]", "[ x = ; ] ]", "x = 1", '[ x = "a ]'])
def test_malformed_ads_are_refused(text):
    with pytest.raises(AdError):
        read_ads(text)


def test_strings_survive_writing_and_reading():
    value = "".join(map(chr, range(1, 300)))
    assert read_ads(write_ad({"A": value, "B": [value, {"C": value}]})) == [{"a": value, "b": [value, {"c": value}]}]


async def test_a_hundred_files_of_a_call_are_fetched_at_once_with_a_report_each(scratch):
    """A server that sends nothing before all files are requested: a file that waited for another would hang."""
    names = [f"{i}.bin" for i in range(100)]
    asked: set[str] = set()
    complete = asyncio.Event()

    async def serve(reader, writer):
        while head := await reader.readuntil(b"\r\n\r\n"):
            name = head.split()[1].decode().removeprefix("/")
            asked.add(name)
            if len(asked) == len(names):
                complete.set()
            await complete.wait()
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(name)}\r\n\r\n{name}".encode())

    async with raw_server(serve) as port:
        files = {name: f"coget://http://127.0.0.1:{port}/{name}" for name in names}
        status, results = await asyncio.to_thread(call, scratch, files, COGET_CONNECTIONS="100")
    assert status == 0, [each.get("transfererror") for each in results.values()]
    assert {name: (scratch / name).read_text() for name in names} == {name: name for name in names}
    assert {name: each["transferurl"] for name, each in results.items()} == files
    assert [each["transfersuccess"] for each in results.values()] == [True] * 100
    assert held(scratch) == sorted(names)
