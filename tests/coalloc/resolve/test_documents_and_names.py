"""Documents that want more than to describe a download: on the command line, with servers that send them."""

import json
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import pytest

from tests.support.coget import coget

KIND = "application/metalink4+xml"
GOOD, SECRET, OTHER = b"what was wanted", b"a private key", b"what was there"


def document(name, *urls, rest=""):
    replicas = "".join(f"<url>{escape(url)}</url>" for url in urls)
    return (
        f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name={quoteattr(name)}>{rest}{replicas}'
        "</file></metalink>"
    ).encode()


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_rsa").write_bytes(SECRET)
    (home / "work").mkdir()
    return home


def fetch(home, *words, cwd=None):
    """Run coget in a directory below the home, or in it."""
    prefix = ("env", "-C", str(cwd)) if cwd else ()
    return coget(["--json", *map(str, words)], home, prefix=prefix)


def files_below(home):
    kept = {".ssh/id_rsa"}
    found = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith((".local", ".cache", ".config"))} - kept


NOT_USED = {
    "a proxy command": "sshftp://-oProxyCommand=touch%20{marker}@127.0.0.1/x",
    "a host as an option": "sshftp://-oProxyCommand=touch%20{marker}/x",
    "percent-encoded": "gsiftp://%2DoProxyCommand=touch@127.0.0.1/x",
    "upper case": "SSHFTP://-oProxyCommand=touch%20{marker}@127.0.0.1/x",
    "a plain user of sshftp": "sshftp://ann@127.0.0.1:1/x",
    "an option in an ftp user": "ftp://-x@127.0.0.1/x",
    "an option behind a second @": "ftp://a@-x@127.0.0.1/x",
    "an option in a password": "ftp://a:b@-x@127.0.0.1/x",
    "a shell in a host": "ftp://a;touch$IFS{marker};/x",
    "a query before the path": "gsiftp://h?-x@127.0.0.1/x",
    "a local file": "file://{home}/.ssh/id_rsa",
    "a local file of fsspec": "local://~/.ssh/id_rsa",
    "memory": "memory://x",
    "a chain": "simplecache::file://{home}/.ssh/id_rsa",
    "a chain in http": "filecache::http://127.0.0.1/x",
    "a plug-in": "github://a:b@main/x",
    "sftp": "sftp://127.0.0.1/x",
}


@pytest.mark.parametrize("url", NOT_USED.values(), ids=NOT_USED)
def test_what_only_the_command_line_may_name_is_left_out(url, serve, home, tmp_path):
    marker = tmp_path / "marker"
    url = url.format(marker=marker, home=home)
    server = serve({"/good": (200, "text/plain", GOOD)})
    hostile = serve(
        {
            "/alone": (200, KIND, document("x", url)),
            "/beside": (200, KIND, document("y", url, f"{server}/good")),
        }
    )
    alone = fetch(home, f"{hostile}/alone")
    assert alone.returncode == 3, alone
    assert "left out" in alone.stdout
    beside = fetch(home, f"{hostile}/beside")
    assert beside.returncode == 0, beside
    assert any("left out" in (source["error"] or "") for source in json.loads(beside.stdout)["sources"])
    assert (home / "y").read_bytes() == GOOD
    assert files_below(home) == {"y"}
    assert not marker.exists()


@pytest.mark.parametrize("how", ["type", "name", "redirect", "local"])
def test_however_a_document_comes_it_reads_nothing_here(how, serve, home):
    evil = document("x", f"file://{home}/.ssh/id_rsa", "local://~/.ssh/id_rsa")
    server = serve({"/type": (200, KIND, evil), "/name.meta4": (200, "x/y", evil), "/redirect": (302, "/type", b"")})
    (home / "work/local.meta4").write_bytes(evil)
    source = {"name": f"{server}/name.meta4", "local": str(home / "work/local.meta4")}.get(how, f"{server}/{how}")
    assert fetch(home, source).returncode == 3
    assert files_below(home) == {"work/local.meta4"}


def test_a_metalink_in_a_metalink_is_a_file(serve, home):
    inner = document("inner", f"file://{home}/.ssh/id_rsa")
    server = serve({"/x.meta4": (200, KIND, inner)})
    outer = serve({"/outer.meta4": (200, KIND, document("x", f"{server}/x.meta4"))})
    assert fetch(home, f"{outer}/outer.meta4").returncode == 0
    assert (home / "x").read_bytes() == inner


@pytest.mark.parametrize("name", [".bashrc", "-rf", ".ssh/authorized_keys", ".config/coget/config.toml", "-"])
@pytest.mark.parametrize("where", ["nowhere", ".", "~", "link", "above", "here"])
def test_no_document_names_settings_or_options(name, where, serve, home, tmp_path):
    server = serve({"/good": (200, "text/plain", GOOD)})
    hostile = serve({"/x.meta4": (200, KIND, document(name, f"{server}/good"))})
    (tmp_path / "link").symlink_to(home)
    to = {"nowhere": (), "above": ()}.get(where, ("-o", {".": ".", "link": tmp_path / "link"}.get(where, home)))
    cwd = home / "work" if where == "nowhere" else home
    result = fetch(home, f"{hostile}/x.meta4", *to, cwd=cwd)
    assert result.returncode == 2, result
    assert files_below(home) == set()


def test_a_directory_above_the_home_does_not_help(serve, home, tmp_path):
    server = serve({"/good": (200, "text/plain", GOOD)})
    hostile = serve({"/x.meta4": (200, KIND, document("home/.bashrc", f"{server}/good"))})
    assert fetch(home, f"{hostile}/x.meta4", "-o", tmp_path).returncode == 2
    (home / "d").symlink_to(".ssh")
    hostile = serve({"/x.meta4": (200, KIND, document("d/authorized_keys", f"{server}/good"))})
    assert fetch(home, f"{hostile}/x.meta4").returncode == 2
    assert files_below(home) == set()


def test_where_the_user_named_the_directory_a_name_may_begin_so(serve, home):
    server = serve({"/good": (200, "text/plain", GOOD)})
    hostile = serve({"/x.meta4": (200, KIND, document(".hidden", f"{server}/good"))})
    assert fetch(home, f"{hostile}/x.meta4", "-o", home / "work").returncode == 0
    assert (home / "work/.hidden").read_bytes() == GOOD
    assert fetch(home, f"{hostile}/x.meta4", "-o", home / ".chosen").returncode == 0
    assert (home / ".chosen").read_bytes() == GOOD


@pytest.mark.parametrize("there", [OTHER, b"x" * len(GOOD), "link", "dangling"])
@pytest.mark.parametrize("to", [(), ("-o", "x")])
def test_no_file_of_other_content_is_replaced(there, to, serve, home):
    server = serve({"/good": (200, "text/plain", GOOD)})
    hostile = serve({"/x.meta4": (200, KIND, document("x", f"{server}/good"))})
    target = home / "x"
    if isinstance(there, bytes):
        target.write_bytes(there)
    else:
        target.symlink_to(".ssh/id_rsa" if there == "link" else "missing")
    before = (target.lstat().st_ino, target.lstat().st_mtime_ns)
    result = fetch(home, f"{hostile}/x.meta4", *to)
    assert result.returncode == 7, result
    assert "--overwrite" in result.stdout
    assert (target.lstat().st_ino, target.lstat().st_mtime_ns) == before
    assert fetch(home, f"{hostile}/x.meta4", *to, "--overwrite").returncode == 0
    assert target.read_bytes() == GOOD
    assert (home / ".ssh/id_rsa").read_bytes() == SECRET


def test_the_right_content_is_success(serve, home):
    server = serve({"/good": (200, "text/plain", GOOD)})
    hostile = serve({"/x.meta4": (200, KIND, document("x", f"{server}/good"))})
    (home / "x").write_bytes(GOOD)
    result = fetch(home, f"{hostile}/x.meta4")
    assert result.returncode == 0, result
    assert files_below(home) == {"x"}
    assert not (home / "x.coget").exists()


def test_what_the_user_named_is_replaced_as_ever(serve, home):
    server = serve({"/.good": (200, "text/plain", GOOD)})
    (home / ".good").write_bytes(OTHER)
    assert fetch(home, f"{server}/.good").returncode == 0
    assert (home / ".good").read_bytes() == GOOD


@pytest.mark.parametrize("url", ["sshftp://-oProxyCommand=touch%20{marker}@127.0.0.1/x", "ftp://%2Dx@127.0.0.1/x"])
@pytest.mark.parametrize("command", ["get", "plan", "probe", "collect", "doctor"])
def test_not_even_the_user_names_options(command, url, home, tmp_path):
    marker = Path(tmp_path, "marker")
    words = [command, url.format(marker=marker)] + (["--to", "d"] if command == "collect" else [])
    result = coget(words, home)
    assert result.returncode != 0, result
    assert "Traceback" not in result.stderr
    assert not marker.exists()
