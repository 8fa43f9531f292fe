"""`make executable`: one file that runs without Python, with no library of the system but the C library and zlib."""

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from coalloc.plugins.classads import read_ads, write_ad
from tests.support.effort import LONG
from tests.support.gsi import Authority
from tests.support.terminal import at_terminal
from tests.support.waiting import PATIENCE
from tests.support.web import ranges, web_server

HOUSE = Path(__file__).parents[1]
LIBRARIES = {"ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "libz.so.1"}
"""The C library and zlib, which it takes from the system."""
SYSTEMS = ("etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt")
EMPTY = {"HOME": "/work"}
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not LONG, reason="takes minutes; make test-long builds it"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the root directory"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A root directory with the executable, the libraries that it needs of the system, and nothing else."""
    root = tmp_path_factory.mktemp("root")
    for place in ("bin", "etc", "tmp", "work"):
        (root / place).mkdir()
    subprocess.run(["make", "executable"], cwd=HOUSE, check=True)
    shutil.copy(HOUSE / "dist/coget", root / "bin/coget")
    (root / "bin/condor_coget_plugin").symlink_to("coget")
    linked = subprocess.check_output(["ldd", root / "bin/coget"], text=True)
    found = {Path(path).name: path for path in re.findall(r"(/\S+) \(0x", linked)}
    assert found.keys() <= LIBRARIES
    found["libm.so.6"] = str(Path(found["libc.so.6"]).with_name("libm.so.6"))
    for library in found.values():
        place = root / library[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
    return root


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def run(root):
    """A function that runs a program in this root directory."""

    def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["/usr/sbin/chroot", root, f"/bin/{program}", *words]  # the whole path: there is no /proc
        return subprocess.run(command, env=EMPTY, capture_output=True, text=True, timeout=PATIENCE, check=False)

    return run


def test_it_has_all_its_libraries(run):
    assert run("coget", "--version").stdout.startswith("coget ")
    told = run("coget", "doctor").stdout
    assert re.search(r"^libraries +ok ", told, re.MULTILINE), told
    assert re.search(r"^cryptography +ok ", told, re.MULTILINE), told


@pytest.mark.parametrize("words", [("condor_coget_plugin",), ("coget", "condor_coget_plugin")])
def test_it_is_the_plugin_too(words, run):
    assert 'PluginType = "FileTransfer"' in run(*words, "-classad").stdout


async def test_the_plugin_fetches_a_file(root, run):
    content = os.urandom(300_000)
    async with web_server(ranges(content)) as server:
        ad = write_ad({"LocalFileName": "/work/y", "Url": f"coget://{server.url}/y"})
        (root / "work/in").write_text(ad)
        done = await asyncio.to_thread(run, "condor_coget_plugin", "-infile", "/work/in", "-outfile", "/work/out")
    assert done.returncode == 0, done.stderr
    (result,) = read_ads((root / "work/out").read_text())
    assert result["transfersuccess"] is True
    assert (root / "work/y").read_bytes() == content


@pytest.mark.parametrize("place", SYSTEMS)
async def test_it_trusts_the_authorities_of_the_system(place, root, run, authority):
    content = os.urandom(300_000)
    bundle, got = root / place, root / "work/x"
    async with web_server(ranges(content), authority) as server:
        words = ("coget", f"{server.url}/x", "-o", "/work/x")
        own = await asyncio.to_thread(run, *words)  # the public authorities, which did not sign the certificate
        assert own.returncode != 0
        assert "certificate" in own.stderr
        assert not got.exists()
        bundle.parent.mkdir(parents=True)
        shutil.copy(authority.authority.certificate, bundle)
        done = await asyncio.to_thread(run, *words)
        bundle.unlink()
        bundle.parent.rmdir()
    assert done.returncode == 0, done.stderr
    assert got.read_bytes() == content
    got.unlink()


async def test_one_control_c_ends_it_cleanly(root, start_gridftp, tmp_path):
    """The terminal signals the executable's two processes, and the one passes the signal on to the other."""
    silent = start_gridftp(tmp_path / "export")
    silent.pause()
    words = [root / "bin/coget", silent.url("x"), "-o", tmp_path / "x"]
    status, output = await asyncio.to_thread(at_terminal, words, tmp_path, (b"connecting", b"\x03"))
    assert status == 130
    assert b"run the same command again" in output
    assert b"Traceback" not in output


def test_a_signal_to_it_reaches_the_program(root, start_gridftp, tmp_path):
    silent = start_gridftp(tmp_path / "export")
    silent.pause()
    words = [root / "bin/coget", "-v", silent.url("x"), "-o", tmp_path / "x"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, env={**EMPTY, "TMPDIR": str(tmp_path)}) as process:
        try:
            assert process.stderr.read(1)
            assert list(tmp_path.glob("_MEI*"))
            process.terminate()
            assert b"interrupted" in process.stderr.read()
        finally:
            process.kill()
    assert process.returncode == 130
    assert list(tmp_path.glob("_MEI*")) == []
