"""Metalinks may not read this machine, start programs, choose hidden names or replace files. One table of each.

Commands run in this process unless they start a program.
"""

import hashlib
import json
import socket
from xml.sax.saxutils import escape, quoteattr

import pytest

from coalloc.cli.main import invoke
from tests.support.coget import coget_process
from tests.support.waiting import PATIENCE

CONTENT = b"what the file has" * 1000
OTHER = CONTENT[::-1]
SECRET = b"PRIVATE KEY"
SHA256 = f"<hash type='sha-256'>{hashlib.sha256(CONTENT).hexdigest()}</hash>"
METALINK = "application/metalink4+xml"


def file(name, *urls, known=SHA256):
    return f"<file name={quoteattr(name)}>{known}{''.join(f'<url>{escape(url)}</url>' for url in urls)}</file>"


def document(*files):
    return f'<metalink xmlns="urn:ietf:params:xml:ns:metalink">{"".join(files)}</metalink>'.encode()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home directory, which is the current one; coget's own files are elsewhere."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_rsa").write_bytes(SECRET)
    (home / "work").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("COGET_BROKER", raising=False)
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def run(home, capsys):
    """`run(*words)`: runs coget and returns its exit status and output."""

    def run(*words):
        status = invoke([str(word) for word in words])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        assert "defect" not in printed.err
        return status, printed.out, printed.err

    return run


def below(home):
    """Return the files in the home directory, except the one that was there before."""
    return {str(path.relative_to(home)) for path in home.rglob("*") if not path.is_dir()} - {".ssh/id_rsa"}


@pytest.fixture
def listener():
    """A port to which no connection may be made."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        yield listening


@pytest.fixture(params=["local", "http by name", "http by type", "redirected"])
def published(request, serve, tmp_path):
    """`published(document_of)`: a Metalink's name for the command line; its server has the file /x, too."""

    def publish(document_of):
        answers = {"/x": (200, "text/plain", CONTENT), "/moved": (302, "/data", b"")}
        server = serve(answers)
        answers["/x.meta4"] = (200, "text/plain", document_of(server))
        answers["/data"] = (200, METALINK, document_of(server))
        local = tmp_path / "given.meta4"
        local.write_bytes(document_of(server))
        places = {"http by name": "/x.meta4", "http by type": "/data", "redirected": "/moved"}
        return str(local) if request.param == "local" else server + places[request.param]

    return publish


REFUSED = (
    "sshftp://ann@127.0.0.1:{port}/x",
    "SSHFTP://ann@127.0.0.1:{port}/x",
    "sshftp://ann@127.0.0.1:1/x",
    "sshftp://-oProxyCommand=touch%20{marker}@127.0.0.1:{port}/x",
    "SSHFTP://-oProxyCommand=touch%20{marker}@127.0.0.1/x",
    "sshftp://-oProxyCommand=touch%20{marker}@127.0.0.1/x",
    "sshftp://-oProxyCommand=touch%20{marker}/x",
    "gsiftp://%2DoProxyCommand=touch@127.0.0.1/x",
    "ftp://-x@127.0.0.1/x",
    "ftp://a@-x@127.0.0.1/x",
    "ftp://a:b@-x@127.0.0.1/x",
    "ftp://a;touch$IFS{marker};/x",
    "gsiftp://h?-x@127.0.0.1/x",
    "ssh://ann@127.0.0.1:{port}/x",
    "sftp://ann@127.0.0.1:{port}/x",
    "sftp://127.0.0.1/x",
    "file://{secret}",
    "FILE://{secret}",
    "local://{secret}",
    "local://~/.ssh/id_rsa",
    "simplecache::file://{secret}",
    "filecache::local://{secret}",
    "filecache::http://127.0.0.1/x",
    "memory://x",
    "s3://bucket/x",
    "zip://x",
    "reference://x",
    "github://a:b@c/x",
    "github://a:b@main/x",
    "ftp:///x",
    "file:{secret}",
    "data:,x",
    "http:x",
)


@pytest.mark.sampled(2)
def test_a_replica_that_only_the_user_may_name_is_left_out(run, home, published, listener, tmp_path):
    marker, port = tmp_path / "started", listener.getsockname()[1]
    bad = [url.format(port=port, marker=marker, secret=home / ".ssh/id_rsa") for url in REFUSED]
    beside = published(
        lambda server: document(*(file(f"{i}", u, f"{server}/x", u.swapcase()) for i, u in enumerate(bad)))
    )
    (home / "got").mkdir()
    status, out, err = run("--json", beside, "-o", "got")
    assert status == 0, err
    for url, report in zip(bad, json.loads(out)["files"], strict=True):
        left_out = [source for source in report["sources"] if source["outcome"] == "unused"]
        assert len(report["sources"]) == 3, url
        assert [("left out" in source["error"]) for source in left_out] == [True, True], url
    assert {path.read_bytes() for path in (home / "got").iterdir()} == {CONTENT}
    assert below(home) == {f"got/{i}" for i in range(len(bad))}
    assert not marker.exists()
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_a_file_fails_where_no_replica_is_left(run, home, listener, tmp_path):
    marker, port, source = tmp_path / "started", listener.getsockname()[1], tmp_path / "given.meta4"
    for url in REFUSED:
        source.write_bytes(document(file("x", url.format(port=port, marker=marker, secret=home / ".ssh/id_rsa"))))
        status, _, err = run(source)
        assert (status, "left out" in err) == (3, True), (url, err)
    assert below(home) == set()
    assert not marker.exists()
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_however_a_document_comes_it_reads_nothing_here(run, home, published):
    source = published(lambda _: document(file("x", f"file://{home}/.ssh/id_rsa", "local://~/.ssh/id_rsa", known="")))
    assert run(source)[0] == 3
    assert below(home) == set()


def test_a_metalink_in_a_metalink_is_a_file(run, home, serve):
    inner = document(file("inner", f"file://{home}/.ssh/id_rsa"))
    server = serve({"/x.meta4": (200, METALINK, inner)})
    outer = serve({"/outer.meta4": (200, METALINK, document(file("x", f"{server}/x.meta4", known="")))})
    assert run(f"{outer}/outer.meta4")[0] == 0
    assert (home / "x").read_bytes() == inner


def test_the_user_may_name_what_starts_a_program(home, listener):
    """This test proves that the tests above test something."""
    port = listener.getsockname()[1]
    with coget_process([f"sshftp://ann@127.0.0.1:{port}/x"], home) as process:
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(4) == b"SSH-"
        process.communicate(timeout=PATIENCE)


OPTIONS = (
    "-oProxyCommand=touch${{IFS}}{marker}@127.0.0.1",
    "%2DoProxyCommand=touch%20{marker}@127.0.0.1",
    "ann -oProxyCommand=touch%20{marker}@127.0.0.1",
    "ann%20-oProxyCommand=touch%09{marker}@127.0.0.1",
    "-oProxyCommand=touch${{IFS}}{marker}",
    "ann;touch%20{marker}@127.0.0.1",
    "ann`touch {marker}`@127.0.0.1",
)


@pytest.mark.parametrize("scheme", ["sshftp", "gsiftp", "ftp"])
def test_no_user_name_or_host_is_an_option_of_another_program(scheme, run, tmp_path):
    marker = tmp_path / "started"
    for place in OPTIONS:
        status, _, err = run("get", "--engine", "globus-url-copy", f"{scheme}://{place.format(marker=marker)}/x")
        assert status == 2, err
        assert "letters, digits" in err or "host or port" in err
    assert not marker.exists()


@pytest.mark.parametrize("command", ["get", "plan", "probe", "collect", "doctor"])
def test_url_of_the_user_names_no_program_options(command, run, tmp_path):
    marker = tmp_path / "marker"
    for url in (f"sshftp://-oProxyCommand=touch%20{marker}@127.0.0.1/x", "ftp://%2Dx@127.0.0.1/x"):
        assert run(command, url, *(("--to", "d") if command == "collect" else ()))[0] != 0
    assert not marker.exists()


HIDDEN = (".bashrc", "-rf", "-", ".ssh/authorized_keys", "-oX/y", "..x", ".config/coget/config.toml")


@pytest.mark.parametrize("name", HIDDEN)
def test_no_document_chooses_a_hidden_name(name, run, home, serve, tmp_path, monkeypatch):
    answers = {"/x": (200, "text/plain", CONTENT)}
    server = serve(answers)
    source = f"{server}/x.meta4"
    answers["/x.meta4"] = (200, "text/plain", document(file(name, f"{server}/x")))
    (tmp_path / "link").symlink_to(home)
    for to in ((), ("-o", "."), ("-o", home), ("-o", tmp_path / "link")):
        status, _, err = run(source, *to)
        assert (status, "begins with" in err) == (2, True), err
    monkeypatch.chdir("work")
    assert run(source)[0] == 2
    monkeypatch.chdir(home)
    assert below(home) == set()
    assert run(source, "-o", "work")[0] == 0
    assert (home / "work" / name).read_bytes() == CONTENT
    if "/" not in name:
        for chosen in ("chosen", ".chosen"):
            assert run(source, "-o", chosen)[0] == 0
            assert (home / chosen).read_bytes() == CONTENT


def test_a_directory_above_the_home_does_not_help(run, home, serve, tmp_path):
    answers = {"/x": (200, "text/plain", CONTENT)}
    server = serve(answers)
    (home / "d").symlink_to(".ssh")
    for name, to in (("home/.bashrc", ("-o", tmp_path)), ("d/authorized_keys", ())):
        answers["/x.meta4"] = (200, METALINK, document(file(name, f"{server}/x")))
        assert run(f"{server}/x.meta4", *to)[0] == 2
    assert below(home) == set()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("known", [SHA256, ""], ids=["with a checksum", "without"])
def test_a_document_replaces_no_other_content(known, run, home, published):
    source, target = published(lambda server: document(file("x", f"{server}/x", known=known))), home / "x"
    for there in (b"mine", OTHER, "link", "dangling"):
        for to in ((), ("-o", "x"), ("-o", ".")):
            target.unlink(missing_ok=True)
            if isinstance(there, bytes):
                target.write_bytes(there)
            else:
                target.symlink_to(".ssh/id_rsa" if there == "link" else "missing")
            before = (target.lstat().st_ino, target.lstat().st_mtime_ns)
            status, _, err = run(source, *to)
            assert (status, "--overwrite" in err) == (7, True), err
            assert (target.lstat().st_ino, target.lstat().st_mtime_ns) == before
        assert run(source, "--overwrite")[0] == 0
        assert target.read_bytes() == CONTENT
    before = target.stat().st_ino
    assert run(source)[0] == 0  # it has the right content
    assert target.stat().st_ino == before
    assert below(home) == {"x"}
    assert (home / ".ssh/id_rsa").read_bytes() == SECRET


def test_the_users_own_url_replaces_as_before(run, home, serve):
    url = serve({"/.x": (200, "text/plain", CONTENT)}) + "/.x"
    (home / ".x").write_bytes(OTHER)
    assert run(url)[0] == 0
    assert (home / ".x").read_bytes() == CONTENT
