"""What Metalinks and brokers may not do: read this machine, start programs, choose hidden names, replace files."""

import hashlib
import json
import socket
from xml.sax.saxutils import escape, quoteattr

import pytest

from tests.support.coget import coget, coget_process

CONTENT = b"what the file has" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SECRET = b"PRIVATE KEY"
METALINK = "application/metalink4+xml"


def document(*urls, name="x", checksum=SHA256):
    known = f"<hash type='sha-256'>{checksum}</hash>" if checksum else ""
    places = "".join(f"<url>{escape(url)}</url>" for url in urls)
    file = f"<file name={quoteattr(name)}>{known}{places}</file>"
    return f'<metalink xmlns="urn:ietf:params:xml:ns:metalink">{file}</metalink>'.encode()


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret").write_bytes(SECRET)
    return home


@pytest.fixture
def listener():
    """A port that nobody should connect to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)
        yield listening


@pytest.fixture(params=["local", "http by name", "http by type", "redirected"])
def published(request, serve, home):
    """`published(document, files)`: a Metalink's name for the command line; the server has the files, too."""

    def publish(document_of, files):
        if request.param == "local":
            server = serve(files)
            path = home / "given.meta4"
            path.write_bytes(document_of(server))
            return str(path)
        answers = dict(files)
        server = serve(answers)
        answers["/x.meta4"] = (200, "text/plain", document_of(server))
        answers["/data"] = (200, METALINK, document_of(server))
        answers["/moved"] = (302, "/data", b"")
        return server + {"http by name": "/x.meta4", "http by type": "/data", "redirected": "/moved"}[request.param]

    return publish


REFUSED = (
    "sshftp://ann@127.0.0.1:{port}/x",
    "SSHFTP://ann@127.0.0.1:{port}/x",
    "sshftp://-oProxyCommand=touch%20{marker}@127.0.0.1:{port}/x",
    "ssh://ann@127.0.0.1:{port}/x",
    "sftp://ann@127.0.0.1:{port}/x",
    "file://{secret}",
    "FILE://{secret}",
    "local://{secret}",
    "simplecache::file://{secret}",
    "filecache::local://{secret}",
    "memory://x",
    "zip://x",
    "reference://x",
    "github://a:b@c/x",
    "ftp:///x",
    "file:{secret}",
    "data:,x",
    "http:x",
)


@pytest.mark.parametrize("url", REFUSED)
def test_a_replica_that_only_the_user_may_name_is_left_out(url, home, serve, listener, tmp_path):
    marker = tmp_path / "started"
    bad = url.format(port=listener.getsockname()[1], marker=marker, secret=home / "secret")
    answers = {"/x": (200, "text/plain", CONTENT)}
    server = serve(answers)
    answers["/x.meta4"] = (200, "text/plain", document(bad, f"{server}/x", bad.swapcase()))
    done = coget(["--json", f"{server}/x.meta4", "-o", "got"], home)
    assert done.returncode == 0, done.stderr
    assert (home / "got").read_bytes() == CONTENT
    sources = json.loads(done.stdout)["sources"]
    left_out = [source for source in sources if source["outcome"] == "unused"]
    assert len(sources) == 3
    assert len(left_out) == 2
    assert all("left out" in source["error"] for source in left_out)
    answers["/x.meta4"] = (200, "text/plain", document(bad))
    alone = coget([f"{server}/x.meta4", "-o", "alone"], home)
    assert alone.returncode == 3, alone.stderr
    assert not (home / "alone").exists()
    assert not marker.exists()
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_the_user_may_name_what_starts_a_program(home, listener):
    """Otherwise the test above would prove nothing."""
    port = listener.getsockname()[1]
    with coget_process([f"sshftp://ann@127.0.0.1:{port}/x"], home) as process:
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(4) == b"SSH-"
        process.communicate(timeout=60)


@pytest.mark.parametrize("scheme", ["sshftp", "gsiftp", "ftp"])
@pytest.mark.parametrize(
    "place",
    [
        "-oProxyCommand=touch${{IFS}}{marker}@127.0.0.1",
        "%2DoProxyCommand=touch%20{marker}@127.0.0.1",
        "ann -oProxyCommand=touch%20{marker}@127.0.0.1",
        "ann%20-oProxyCommand=touch%09{marker}@127.0.0.1",
        "-oProxyCommand=touch${{IFS}}{marker}",
        "ann;touch%20{marker}@127.0.0.1",
        "ann`touch {marker}`@127.0.0.1",
    ],
)
def test_no_user_name_or_host_is_an_option_of_another_program(scheme, place, home, tmp_path):
    marker = tmp_path / "started"
    words = ["--engine", "globus-url-copy", f"{scheme}://{place.format(marker=marker)}/x"]
    done = coget(words, home)
    assert done.returncode == 2, done.stderr
    assert "letters, digits" in done.stderr or "host or port" in done.stderr
    assert not marker.exists()


@pytest.mark.parametrize("name", [".bashrc", "-rf", ".ssh/authorized_keys", "-oX/y", "..x"])
def test_no_document_chooses_a_hidden_name(name, home, serve, tmp_path):
    answers = {"/x": (200, "text/plain", CONTENT)}
    source = serve(answers) + "/x.meta4"
    answers["/x.meta4"] = (200, "text/plain", document(source.replace(".meta4", ""), name=name))
    for words in ([], ["-o", "."]):
        done = coget([source, *words], home)
        assert done.returncode == 2, done.stderr
        assert "begins with" in done.stderr
    (tmp_path / "link").symlink_to(home)
    assert coget([source, "-o", str(tmp_path / "link")], home).returncode == 2
    assert {path.name for path in home.iterdir()} <= {"secret", ".config", ".local"}
    (home / "own").mkdir()
    assert coget([source, "-o", "own"], home).returncode == 0
    assert (home / "own" / name).read_bytes() == CONTENT
    if "/" not in name:
        assert coget([source, "-o", "chosen"], home).returncode == 0
        assert (home / "chosen").read_bytes() == CONTENT


def test_a_document_replaces_no_other_content(home, published):
    source = published(lambda server: document(f"{server}/x"), {"/x": (200, "text/plain", CONTENT)})
    for words in ([], ["-o", "x"], ["-o", "."]):
        (home / "x").write_bytes(b"mine")
        done = coget([source, *words], home)
        assert done.returncode == 7, done.stderr
        assert "--overwrite" in done.stderr
        assert (home / "x").read_bytes() == b"mine"
    assert coget([source, "--overwrite"], home).returncode == 0
    assert (home / "x").read_bytes() == CONTENT
    assert coget([source], home).returncode == 0  # it has the right content


def test_a_document_without_checksums_replaces_nothing(home, published):
    source = published(lambda server: document(f"{server}/x", checksum=None), {"/x": (200, "text/plain", CONTENT)})
    for mine in (b"mine", CONTENT[::-1]):
        (home / "x").write_bytes(mine)
        assert coget([source], home).returncode == 7
        assert (home / "x").read_bytes() == mine
    (home / "x").write_bytes(CONTENT)
    before = (home / "x").stat()
    assert coget([source], home).returncode == 0
    assert (home / "x").stat().st_ino == before.st_ino
    assert not (home / "x.coget").exists()
    (home / "x").unlink()
    (home / "x").symlink_to("nowhere")
    assert coget([source], home).returncode == 7
    assert (home / "x").is_symlink()


def test_the_users_own_url_replaces_as_before(home, serve):
    url = serve({"/.x": (200, "text/plain", CONTENT)}) + "/.x"
    (home / ".x").write_bytes(b"old")
    assert coget([url], home).returncode == 0
    assert (home / ".x").read_bytes() == CONTENT
