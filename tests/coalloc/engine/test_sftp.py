"""SFTP with a real OpenSSH server: only servers with a known host key are used."""

import subprocess

import fsspec
import pytest
from fsspec.registry import _registry

from coalloc.engine.fsspec_source import BridgeSource
from coalloc.errors import PermissionRefused
from tests.support.coget import coget
from tests.support.fetching import collect, opened, options, random_file
from tests.support.sshd import SSHD


@pytest.fixture
def home(tmp_path, monkeypatch):
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setattr("coalloc.engine.sftp.FILES", ("~/.ssh/known_hosts", str(tmp_path / "system")))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return path


@pytest.fixture
def server(tmp_path, home):
    with SSHD(tmp_path / "sshd", home) as running:
        yield running


def hashed(path):
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", path], check=True, capture_output=True)


def written(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))


async def fetched(server, path, host="127.0.0.1"):
    async with opened(BridgeSource(server.url(path, host), options())) as source:
        return await collect(source, 0, path.stat().st_size)


KNOWN = {
    "by address": ("[127.0.0.1]:{port} {ed25519}",),
    "by one of its keys": ("[127.0.0.1]:{port} {rsa}",),
    "of several names": ("h.example,[127.0.0.1]:{port} {ed25519} a comment",),
    "by a pattern": ("[127.0.0.*]:{port} {ed25519}",),
    "by any name": ("*,!other.example {ed25519}",),
    "with an older key of the type": ("[127.0.0.1]:{port} {other}", "[127.0.0.1]:{port} {ed25519}"),
    "with a newer key of the type": ("[127.0.0.1]:{port} {ed25519}", "[127.0.0.1]:{port} {other}"),
    "beside nonsense": (
        "",
        "#",
        "@revoked",
        "x y",
        "[127.0.0.1]:{port} ssh-rsa !",
        "\u202e",
        "[127.0.0.1]:{port} {ed25519}",
    ),
}
UNKNOWN = {
    "no line": (),
    "of another port": ("127.0.0.1 {ed25519}", "[127.0.0.1]:22 {ed25519}"),
    "of another host": ("[127.0.0.2]:{port} {ed25519}",),
    "with an exception": ("*,![127.0.0.1]:{port} {ed25519}",),
    "brackets are no set": ("[127]:{port} {ed25519}", "1 {ed25519}"),
    "an authority": ("@cert-authority * {ed25519}",),
    "another marker": ("@x [127.0.0.1]:{port} {ed25519}",),
}


def filled_in(server, lines, other):
    keys = {"port": server.port, "ed25519": server.key("ed25519"), "rsa": server.key("rsa"), "other": other}
    return [line.format(**keys) for line in lines]


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    path = tmp_path_factory.mktemp("other") / "key"
    SSHD._keygen(path, "ed25519")
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


async def test_known_servers(server, home, tmp_path, other):
    content = random_file(tmp_path / "file", 100_000)
    for name, lines in KNOWN.items():
        written(home / ".ssh" / "known_hosts", *filled_in(server, lines, other))
        assert await fetched(server, tmp_path / "file") == content, name
    written(home / ".ssh" / "known_hosts", *filled_in(server, KNOWN["by address"], other))
    hashed(home / ".ssh" / "known_hosts")
    assert (home / ".ssh" / "known_hosts").read_text().startswith("|1|")
    assert await fetched(server, tmp_path / "file") == content
    (home / ".ssh" / "known_hosts").rename(tmp_path / "system")
    assert await fetched(server, tmp_path / "file") == content
    written(home / ".ssh" / "known_hosts", f"[localhost]:{server.port} {server.key('ed25519')}")
    assert await fetched(server, tmp_path / "file", "LOCALHOST") == content


async def refusal(server, path):
    source = BridgeSource(server.url(path), options())
    with pytest.raises(PermissionRefused) as caught:
        await source.open()
    await source.close()
    return caught.value


async def test_unknown_servers_are_refused(server, home, tmp_path, other):
    random_file(tmp_path / "file", 10)
    for lines in UNKNOWN.values():
        written(home / ".ssh" / "known_hosts", *filled_in(server, lines, other))
        error = await refusal(server, tmp_path / "file")
        assert f"[127.0.0.1]:{server.port}: its host key, ssh-ed25519 SHA256:" in error.message
        assert error.message.endswith("is not known")
        assert f"ssh-keyscan -p {server.port} 127.0.0.1 >> ~/.ssh/known_hosts" in error.remedy


async def test_changed_keys_are_refused(server, home, tmp_path):
    random_file(tmp_path / "file", 10)
    written(home / ".ssh" / "known_hosts", f"[127.0.0.1]:{server.port} {server.key('ed25519')}")
    server.exchange()
    error = await refusal(server, tmp_path / "file")
    assert "is not the known one" in error.message
    assert f"ssh-keygen -R '[127.0.0.1]:{server.port}'" in error.remedy


async def test_revoked_keys_are_refused(server, home, tmp_path):
    random_file(tmp_path / "file", 10)
    name, keys = f"[127.0.0.1]:{server.port}", [server.key("ed25519"), server.key("rsa")]
    known = [f"{name} {key}" for key in keys]
    written(home / ".ssh" / "known_hosts", *known, *(f"@revoked * {key}" for key in keys))
    assert "is revoked" in (await refusal(server, tmp_path / "file")).message


def test_command_of_the_remedy_makes_the_host_key_known(server, home, tmp_path):
    content = random_file(tmp_path / "file", 10)
    url = server.url(tmp_path / "file")
    refused = coget([url, "-o", "x"], home)
    assert (refused.returncode, "is not known" in refused.stderr) == (7, True), refused.stderr
    assert not (home / ".ssh" / "known_hosts").exists()
    command = refused.stderr.rpartition("or: ")[2].strip()
    subprocess.run(command, shell=True, check=True, env={"HOME": str(home), "PATH": "/usr/bin:/bin"})
    assert coget([url, "-o", "x"], home).returncode == 0
    assert (home / "x").read_bytes() == content


async def test_no_plug_in_takes_the_scheme(server, home, tmp_path, monkeypatch):
    class Anyone(fsspec.AbstractFileSystem):
        protocol = ("sftp", "ssh")

        def info(self, path, **kwargs):
            raise AssertionError

    random_file(tmp_path / "file", 10)
    for scheme in Anyone.protocol:
        monkeypatch.setitem(_registry, scheme, Anyone)
        source = BridgeSource(server.url(tmp_path / "file").replace("sftp", scheme, 1), options())
        with pytest.raises(PermissionRefused):
            await source.open()
